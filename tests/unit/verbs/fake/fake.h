// RDMA devices made of ordinary memory: definitions of the functions of libibverbs and librdmacm
// that the verbs backend calls take the place of the libraries' own in the program linked with
// them.
//
// Frames are really copied between queue pairs of the process. What a kernel would refuse or leak
// is noted in World::violations. Apart from asynchronous events everything belongs to one thread.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace selmcast::fake {

struct Gid {
  std::array<std::uint8_t, 16> raw{};
  std::uint32_t index = 0;
  std::uint32_t type = IBV_GID_TYPE_ROCE_V2;
  std::uint32_t interface_index = 0;
};

struct Port {
  ibv_port_state state = IBV_PORT_ACTIVE;
  std::uint8_t link_layer = IBV_LINK_LAYER_ETHERNET;
  std::uint16_t lid = 0;
  ibv_mtu mtu = IBV_MTU_1024;
  int gid_table_length = 16;
  std::vector<Gid> gids;
};

struct Device {
  std::string name;
  std::vector<Port> ports;
  std::uint32_t inline_most = 512;
  int max_srq = 16;
  int max_qp_wr = 4096;
  int max_cqe = 65'536;
  ibv_packet_pacing_caps pacing{};  ///< None.
  // Of the counter that stamps completions; 0: there is none.
  std::uint64_t clock_mask = 0, clock_khz = 0;
};

enum class Object : std::uint8_t {
  device_list,
  context,
  domain,
  channel,
  completions,
  shared_queue,
  queue_pair,
  region,
  way,
  event_channel,
  cm_id,
  membership,
  count
};

/// What rdma_join_multicast_ex() leads to.
enum class JoinEnd : std::uint8_t { joined, error_event, device_removal, other_key, silence };

struct World {
  std::vector<Device> devices;

  /// Call number `fail_at` (from 1) of `fail_call` and the fail_times - 1 after it fail with
  /// `fail_error`.
  std::string fail_call;
  int fail_at = 0, fail_times = 1, fail_error = 0;
  std::map<std::string, int> calls;

  std::array<int, static_cast<std::size_t>(Object::count)> live{};
  std::vector<std::string> violations;

  JoinEnd join_end = JoinEnd::joined;
  /// Of the groups' multicast LIDs on InfiniBand, a multiple of 256; another one after a subnet
  /// manager's restart, which leaves the former ones leading nowhere.
  std::uint16_t first_mlid = 0xC000;
  /// Posted sends stay where they are while this holds; see deliver().
  bool hold = false;
  /// Of a send about to be done; success where not set.
  std::function<ibv_wc_status(const ibv_qp&, const ibv_send_wr&)> send_status;
  /// Of a datagram about to arrive at a queue pair; success where not set.
  std::function<ibv_wc_status(const ibv_qp&)> receive_status;
  /// Whether the network loses a datagram to a queue pair of this number; false where not set.
  std::function<bool(std::uint32_t qpn, const std::vector<std::uint8_t>& bytes)> loses;
  /// Completions of a queue pair leave the queue with it, as on mlx5; on rxe they stay.
  bool purges = false;
  /// What devices' counters show, beyond their masks; completions carry it.
  std::uint64_t ticks = 0;
  /// Work requests of one chain that post_send takes before it refuses the next; < 0: all.
  int takes_of_chain = -1;

  void fail(const std::string& call, int at, int error, int times = 1) {
    fail_call = call;
    fail_at = at;
    fail_error = error;
    fail_times = times;
    calls.clear();
  }
  int alive(Object kind) const { return live[static_cast<std::size_t>(kind)]; }
};

World& world();
/// A world with `count` Ethernet devices fake0, fake1, ... of one active port each, GIDs
/// ::ffff:10.0.0.1, .2, ... at index 1.
void reset(std::size_t count = 1);

Gid ipv4_gid(std::uint32_t index, std::uint8_t last, std::uint32_t type = IBV_GID_TYPE_ROCE_V2);
Gid ipv6_gid(std::uint32_t index, std::uint8_t first, std::uint8_t second);

/// Does the sends that were held.
void deliver();
/// Sends a datagram to a queue pair from nowhere.
void inject(std::uint32_t qpn, const std::vector<std::uint8_t>& bytes);
/// Puts a queue pair into error, as a device does.
void break_queue_pair(std::uint32_t qpn);
/// What a queue pair is held to by its device, in kbit/s; 0: nothing.
std::uint32_t rate_of(std::uint32_t qpn);
/// The path MTU that a queue pair was connected with.
ibv_mtu path_mtu_of(std::uint32_t qpn);
/// The IBV_ACCESS_* flags of the latest region that contains `at`; -1: none does.
int access_to(const void* at);
/// An asynchronous event of a device.
void raise(const std::string& device, ibv_event_type event, int port = 1);
/// The subnet manager forgets all groups: memberships end, as their holders are told.
void end_memberships();
/// Its asynchronous events end, as when the driver was removed.
void remove_device(const std::string& device);
/// Of the queue pairs alive: number and type in order of creation.
std::vector<std::uint32_t> queue_pairs(ibv_qp_type type);
/// Receives posted to the queue pairs and shared queues of a device.
std::size_t receives_posted(const std::string& device);
/// Whether two posted receives name the same memory.
bool posted_twice();

}  // namespace selmcast::fake
