// The objects behind the handles of the fake devices.
#pragma once

#include <rdma/rdma_cma.h>

#include <deque>
#include <memory>
#include <set>

#include "tests/unit/verbs/fake/fake.h"

namespace selmcast::fake {

struct Opened {
  verbs_context extended{};
  ibv_context& base() noexcept { return extended.context; }
  const ibv_context& base() const noexcept { return extended.context; }
  ibv_device* device = nullptr;
  int async_write = -1;
  int children = 0;
};
struct Domain {
  ibv_pd base{};
  int children = 0;
};
struct Channel {
  ibv_comp_channel base{};
  int write = -1;
  int users = 0;
};
struct QueuePair;
struct Entry {
  ibv_wc wc{};
  QueuePair* owner = nullptr;  ///< Null once it is destroyed.
  std::uint64_t frees = 0;     ///< Sends up to this number leave the queue when it is polled.
  std::uint64_t ticks = world().ticks;  ///< Of the device's counter when it was made.
};
struct Completions {
  ibv_cq_ex timed{};  ///< Also of a plain one, which has no functions there.
  ibv_cq* base() noexcept { return ibv_cq_ex_to_cq(&timed); }
  Entry now{};  ///< That a timed poll is at.
  bool polling = false;
  std::deque<Entry> entries;
  bool armed = false;
  int users = 0, events = 0, acknowledged = 0;
};
struct Receive {
  std::uint64_t id = 0;
  std::vector<ibv_sge> places;
};
struct SharedQueue {
  ibv_srq base{};
  std::deque<Receive> receives;
  std::uint32_t depth = 0;
  int users = 0;
};
struct Send {
  ibv_send_wr request{};
  std::vector<ibv_sge> places;
  std::vector<std::uint8_t> copy;  ///< Of inline bytes.
  std::uint64_t number = 0;
};
struct QueuePair {
  ibv_qp base{};
  std::uint32_t rate_kbps = 0;  ///< 0: no limit.
  ibv_qp_cap cap{};
  ibv_qp_attr attributes{};
  std::deque<Send> sends;
  std::deque<Receive> receives;
  std::uint64_t posted = 0, freed = 0;
  std::set<std::string> groups;
};
struct Region {
  ibv_mr base{};
  int access = 0;
};
struct Way {
  ibv_ah base{};
  ibv_ah_attr attributes{};
};

template <class T, class Base>
T* of(Base* base) {
  return reinterpret_cast<T*>(base);  // `base` is the first member
}

template <>
inline Opened* of<Opened, ibv_context>(ibv_context* base) {
  return reinterpret_cast<Opened*>(verbs_get_ctx(base));
}

struct Registry {
  std::vector<QueuePair*> queue_pairs;
  std::vector<SharedQueue*> shared_queues;
  std::vector<Region*> regions;
  std::vector<Opened*> contexts;
  std::vector<std::unique_ptr<ibv_device>> devices;
  std::uint32_t next_qpn = 0x11, next_key = 0x100;
};
Registry& registry();

/// 0, or the errno that this call is to fail with.
int fails(const char* call);
void count(Object kind, int change);
/// Notes a violation.
void violated(const std::string& what);
/// Whether something with `children` may be destroyed.
bool may_go(const char* what, int children);
const Device& device_of(const ibv_context* context);
/// Whether an address may be made from this: a GRH needs a GID at its index.
bool has_source(const ibv_context* context, const ibv_ah_attr& way);

std::string group_key(const ibv_gid& gid, std::uint16_t lid);
void to_error(QueuePair& qp);
void to_reset(QueuePair& qp);
void forget(QueuePair& qp);

// The functions behind context->ops.
int post_send(ibv_qp* qp, ibv_send_wr* chain, ibv_send_wr** refused);
int post_receive(ibv_qp* qp, ibv_recv_wr* chain, ibv_recv_wr** refused);
int post_shared(ibv_srq* srq, ibv_recv_wr* chain, ibv_recv_wr** refused);
int poll_completions(ibv_cq* cq, int most, ibv_wc* out);
int arm(ibv_cq* cq, int solicited);
/// Takes the oldest entry. There must be one.
Entry take_entry(Completions& queue);
// Those of the extended context.
ibv_cq_ex* create_timed(ibv_context* context, ibv_cq_init_attr_ex* init);
int query_device_ex(ibv_context* context, const ibv_query_device_ex_input* input,
                    ibv_device_attr_ex* out, std::size_t bytes);
int limit_rate(ibv_qp* qp, ibv_qp_rate_limit_attr* limit);

}  // namespace selmcast::fake
