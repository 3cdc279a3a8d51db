// Devices, and what is made on them but queue pairs.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tests/unit/verbs/fake/model.h"

#undef ibv_query_port
#undef ibv_reg_mr

namespace selmcast::fake {

World& world() {
  static World the_world;
  return the_world;
}
Registry& registry() {
  static Registry the_registry;
  return the_registry;
}

Gid ipv4_gid(std::uint32_t index, std::uint8_t last, std::uint32_t type) {
  Gid out{.raw = {}, .index = index, .type = type};
  out.raw = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 10, 0, 0, last};
  return out;
}
Gid ipv6_gid(std::uint32_t index, std::uint8_t first, std::uint8_t second) {
  Gid out{.raw = {}, .index = index};
  out.raw[0] = first;
  out.raw[1] = second;
  out.raw[15] = 1;
  return out;
}

void reset(std::size_t count) {
  world() = World{};
  registry() = Registry{};
  for (std::size_t i = 0; i < count; ++i) {
    Device device;
    device.name = "fake" + std::to_string(i);
    device.ports.emplace_back();
    device.ports[0].gids = {ipv4_gid(1, static_cast<std::uint8_t>(i + 1))};
    world().devices.push_back(device);
  }
}

int fails(const char* call) {
  World& w = world();
  const int number = ++w.calls[call];
  if (w.fail_call != call || number < w.fail_at || number >= w.fail_at + w.fail_times) return 0;
  return w.fail_error;
}

void count(Object kind, int change) {
  world().live[static_cast<std::size_t>(kind)] += change;
}
void violated(const std::string& what) {
  world().violations.push_back(what);
}
bool may_go(const char* what, int children) {
  if (children == 0) return true;
  violated(std::string(what) + " destroyed while " + std::to_string(children) + " use it");
  return false;
}

const Device& device_of(const ibv_context* context) {
  for (const Device& device : world().devices) {
    if (device.name == context->device->name) return device;
  }
  std::abort();
}

bool has_source(const ibv_context* context, const ibv_ah_attr& way) {
  if (way.is_global == 0) return true;
  const auto& gids = device_of(context).ports.at(way.port_num - 1U).gids;
  return std::any_of(gids.begin(), gids.end(),
                     [&](const Gid& gid) { return gid.index == way.grh.sgid_index; });
}

int query_device_ex(ibv_context* context, const ibv_query_device_ex_input*, ibv_device_attr_ex* out,
                    std::size_t) {
  if (const int error = fails("ibv_query_device_ex")) return error;
  *out = {};
  out->packet_pacing_caps = device_of(context).pacing;
  out->completion_timestamp_mask = device_of(context).clock_mask;
  out->hca_core_clock = device_of(context).clock_khz;
  return 0;
}

namespace {

void make_pipe(int& read_end, int& write_end) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) std::abort();
  read_end = ends[0];
  write_end = ends[1];
}

}  // namespace

void raise(const std::string& device, ibv_event_type event, int port) {
  for (const Opened* opened : registry().contexts) {
    if (device != opened->base().device->name) continue;
    ibv_async_event out{};
    out.event_type = event;
    out.element.port_num = port;
    if (write(opened->async_write, &out, sizeof out) != sizeof out) std::abort();
  }
}

void remove_device(const std::string& device) {
  for (Opened* opened : registry().contexts) {
    if (device != opened->base().device->name) continue;
    close(opened->async_write);
    opened->async_write = -1;
  }
}

}  // namespace selmcast::fake

using namespace selmcast::fake;  // NOLINT: the library's names are global

extern "C" {

ibv_device** ibv_get_device_list(int* number) {
  if (const int error = fails("ibv_get_device_list")) return errno = error, nullptr;
  auto& devices = world().devices;
  auto** const list = new ibv_device* [devices.size() + 1] {};
  for (std::size_t i = 0; i < devices.size(); ++i) {
    auto made = std::make_unique<ibv_device>();
    std::strncpy(made->name, devices[i].name.c_str(), sizeof made->name - 1);
    list[i] = made.get();
    registry().devices.push_back(std::move(made));
  }
  if (number != nullptr) *number = static_cast<int>(devices.size());
  count(Object::device_list, 1);
  return list;
}
void ibv_free_device_list(ibv_device** list) {
  count(Object::device_list, -1);
  delete[] list;
}
const char* ibv_get_device_name(ibv_device* device) {
  return device->name;
}

ibv_context* ibv_open_device(ibv_device* device) {
  if (const int error = fails("ibv_open_device")) return errno = error, nullptr;
  auto* const out = new Opened();
  out->extended.sz = sizeof out->extended;
  out->extended.query_device_ex = query_device_ex;
  out->extended.create_cq_ex = create_timed;
  out->extended.modify_qp_rate_limit = limit_rate;
  ibv_context& base = out->base();
  base.abi_compat = __VERBS_ABI_IS_EXTENDED;
  base.device = device;
  base.ops.poll_cq = poll_completions;
  base.ops.req_notify_cq = arm;
  base.ops.post_srq_recv = post_shared;
  base.ops.post_send = post_send;
  base.ops.post_recv = post_receive;
  make_pipe(base.async_fd, out->async_write);
  registry().contexts.push_back(out);
  count(Object::context, 1);
  return &base;
}
int ibv_close_device(ibv_context* context) {
  auto* const opened = of<Opened>(context);
  if (!may_go("context", opened->children)) return EBUSY;
  close(context->async_fd);
  if (opened->async_write >= 0) close(opened->async_write);
  std::erase(registry().contexts, opened);
  count(Object::context, -1);
  delete opened;
  return 0;
}
int ibv_query_device(ibv_context* context, ibv_device_attr* out) {
  if (const int error = fails("ibv_query_device")) return error;
  const Device& device = device_of(context);
  *out = {};
  out->phys_port_cnt = static_cast<std::uint8_t>(device.ports.size());
  out->max_qp_wr = device.max_qp_wr;
  out->max_sge = 32;
  out->max_cqe = device.max_cqe;
  out->max_srq = device.max_srq;
  out->max_srq_wr = 4096;
  out->max_qp_rd_atom = out->max_qp_init_rd_atom = 16;
  return 0;
}
int ibv_query_port(ibv_context* context, std::uint8_t number, _compat_ibv_port_attr* compat) {
  if (const int error = fails("ibv_query_port")) return error;
  const Port& port = device_of(context).ports.at(number - 1U);
  auto* const out = reinterpret_cast<ibv_port_attr*>(compat);
  out->state = port.state;
  out->active_mtu = out->max_mtu = port.mtu;
  out->gid_tbl_len = port.gid_table_length;
  out->lid = port.lid;
  out->link_layer = port.link_layer;
  return 0;
}
int _ibv_query_gid_ex(ibv_context* context, std::uint32_t number, std::uint32_t index,
                      ibv_gid_entry* out, std::uint32_t, std::size_t) {
  if (const int error = fails("ibv_query_gid_ex")) return error;
  const Port& port = device_of(context).ports.at(number - 1U);
  const bool ethernet = port.link_layer == IBV_LINK_LAYER_ETHERNET;
  for (const Gid& gid : port.gids) {
    if (gid.index != index) continue;
    *out = {};
    std::memcpy(out->gid.raw, gid.raw.data(), gid.raw.size());
    out->gid_index = index;
    out->port_num = number;
    out->gid_type = gid.type;
    out->ndev_ifindex = ethernet ? gid.interface_index : 0;  // as the kernel does
    return 0;
  }
  return ENODATA;
}

ibv_pd* ibv_alloc_pd(ibv_context* context) {
  if (const int error = fails("ibv_alloc_pd")) return errno = error, nullptr;
  auto* const out = new Domain();
  out->base.context = context;
  ++of<Opened>(context)->children;
  count(Object::domain, 1);
  return &out->base;
}
int ibv_dealloc_pd(ibv_pd* pd) {
  auto* const domain = of<Domain>(pd);
  if (!may_go("protection domain", domain->children)) return EBUSY;
  --of<Opened>(pd->context)->children;
  count(Object::domain, -1);
  delete domain;
  return 0;
}

ibv_mr* ibv_reg_mr(ibv_pd* pd, void* at, std::size_t bytes, int access) {
  if (const int error = fails("ibv_reg_mr")) return errno = error, nullptr;
  auto* const out = new Region();
  out->base.context = pd->context;
  out->base.pd = pd;
  out->base.addr = at;
  out->base.length = bytes;
  out->base.lkey = registry().next_key++;
  out->base.rkey = registry().next_key++;
  out->access = access;
  ++of<Domain>(pd)->children;
  registry().regions.push_back(out);
  count(Object::region, 1);
  return &out->base;
}
ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* at, std::size_t bytes, std::uint64_t, unsigned access) {
  return ibv_reg_mr(pd, at, bytes, static_cast<int>(access));
}
int ibv_dereg_mr(ibv_mr* mr) {
  auto* const region = of<Region>(mr);
  --of<Domain>(mr->pd)->children;
  std::erase(registry().regions, region);
  count(Object::region, -1);
  delete region;
  return 0;
}

ibv_comp_channel* ibv_create_comp_channel(ibv_context* context) {
  if (const int error = fails("ibv_create_comp_channel")) return errno = error, nullptr;
  auto* const out = new Channel();
  out->base.context = context;
  make_pipe(out->base.fd, out->write);
  ++of<Opened>(context)->children;
  count(Object::channel, 1);
  return &out->base;
}
int ibv_destroy_comp_channel(ibv_comp_channel* channel) {
  auto* const c = of<Channel>(channel);
  if (!may_go("completion channel", c->users)) return EBUSY;
  --of<Opened>(channel->context)->children;
  close(channel->fd);
  close(c->write);
  count(Object::channel, -1);
  delete c;
  return 0;
}
ibv_cq* ibv_create_cq(ibv_context* context, int entries, void*, ibv_comp_channel* channel, int) {
  if (const int error = fails("ibv_create_cq")) return errno = error, nullptr;
  auto* const out = new Completions();
  out->timed.context = context;
  out->timed.channel = channel;
  out->timed.cqe = entries;
  if (channel != nullptr) ++of<Channel>(channel)->users;
  ++of<Opened>(context)->children;
  count(Object::completions, 1);
  return out->base();
}
int ibv_destroy_cq(ibv_cq* cq) {
  auto* const queue = of<Completions>(cq);
  if (!may_go("completion queue", queue->users)) return EBUSY;
  if (queue->events != queue->acknowledged) violated("completion events not acknowledged");
  if (cq->channel != nullptr) --of<Channel>(cq->channel)->users;
  --of<Opened>(cq->context)->children;
  count(Object::completions, -1);
  delete queue;
  return 0;
}
int ibv_get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** context) {
  Completions* queue = nullptr;
  if (read(channel->fd, &queue, sizeof queue) != sizeof queue) return -1;
  ++queue->events;
  *cq = queue->base();
  *context = nullptr;
  return 0;
}
void ibv_ack_cq_events(ibv_cq* cq, unsigned number) {
  of<Completions>(cq)->acknowledged += static_cast<int>(number);
}

ibv_srq* ibv_create_srq(ibv_pd* pd, ibv_srq_init_attr* init) {
  if (const int error = fails("ibv_create_srq")) return errno = error, nullptr;
  auto* const out = new SharedQueue();
  out->base.context = pd->context;
  out->base.pd = pd;
  out->depth = init->attr.max_wr;
  ++of<Domain>(pd)->children;
  registry().shared_queues.push_back(out);
  count(Object::shared_queue, 1);
  return &out->base;
}
int ibv_destroy_srq(ibv_srq* srq) {
  auto* const queue = of<SharedQueue>(srq);
  if (!may_go("shared receive queue", queue->users)) return EBUSY;
  --of<Domain>(srq->pd)->children;
  std::erase(registry().shared_queues, queue);
  count(Object::shared_queue, -1);
  delete queue;
  return 0;
}

ibv_ah* ibv_create_ah(ibv_pd* pd, ibv_ah_attr* attributes) {
  if (const int error = fails("ibv_create_ah")) return errno = error, nullptr;
  if (!has_source(pd->context, *attributes)) return errno = EINVAL, nullptr;
  auto* const out = new Way();
  out->base.context = pd->context;
  out->base.pd = pd;
  out->attributes = *attributes;
  ++of<Domain>(pd)->children;
  count(Object::way, 1);
  return &out->base;
}
int ibv_destroy_ah(ibv_ah* ah) {
  for (const QueuePair* qp : registry().queue_pairs) {
    for (const Send& send : qp->sends) {
      if (qp->base.qp_type == IBV_QPT_UD && send.request.wr.ud.ah == ah) {
        violated("an address handle was destroyed before the sends that use it");
      }
    }
  }
  --of<Domain>(ah->pd)->children;
  count(Object::way, -1);
  delete of<Way>(ah);
  return 0;
}

// Called by another thread, hence without World.
int ibv_get_async_event(ibv_context* context, ibv_async_event* event) {
  const auto got = read(context->async_fd, event, sizeof *event);
  if (got == sizeof *event) return 0;
  if (got == 0) errno = EIO;
  return -1;
}
void ibv_ack_async_event(ibv_async_event*) {}

}  // extern "C"
