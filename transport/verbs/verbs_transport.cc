#include "transport/verbs/verbs_transport.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/random.h"
#include "transport/group_address.h"
#include "transport/verbs/explain.h"
#include "transport/verbs/packet_size.h"
#include "transport/verbs/verbs_backend.h"

namespace selmcast::verbs {
namespace {

constexpr std::uint32_t kEthernetHeader = 14;

// As for IP multicast: switches learn of members from the kernel's reports.
constexpr Duration kJoinSettle = std::chrono::milliseconds(100);

// Memory that is posted but kept for control frames, which take a buffer each like any other.
constexpr std::uint64_t kWindowShare = 3, kWindowOf = 4;

std::uint32_t overhead(GidKind kind) noexcept {
  return datagram_headers(kind) + (kind == GidKind::infiniband ? 0 : kEthernetHeader);
}

}  // namespace

Result<std::unique_ptr<Transport>> VerbsTransport::open(const TransportConfig& config) {
  std::unique_ptr<VerbsTransport> out(new VerbsTransport(config.job));
  if (auto state = out->open_rails(config); !state) return std::move(state).error();
  auto wake = make_wake_event(false);
  if (!wake) return std::move(wake).error();
  out->wake_fd_ = std::move(wake).value();
  out->reads_.resize(ReadLinks::kReads);
  out->stash_.resize(kBatch * out->rails_.size());
  out->describe();
  out->note_missing(config);
  std::vector<Rail*> rails;
  for (const auto& rail : out->rails_) rails.push_back(rail.get());
  VerbsTransport* const self = out.get();
  auto events = AsyncEvents::start(std::move(rails), [self] { self->wake(); });
  if (!events) return std::move(events).error();
  out->events_ = std::move(events).value();
  return std::unique_ptr<Transport>(std::move(out));
}

Result<void> VerbsTransport::open_rails(const TransportConfig& config) {
  const std::string& all = config.interface;
  for (std::size_t at = 0; at != std::string::npos;) {
    const std::size_t plus = all.find('+', at);
    const std::string name = all.substr(at, plus == std::string::npos ? plus : plus - at);
    at = plus == std::string::npos ? plus : plus + 1;
    if (name.empty() && !all.empty()) {
      return bad_input("devices '" + all + "': a device's name is missing beside a '+'");
    }
    auto wish = parse_port_wish(name);
    if (!wish) return std::move(wish).error();
    if (rails_.size() == kRailsMax) {
      return bad_input("devices '" + config.interface + "': a rank stripes over at most " +
                       std::to_string(kRailsMax));
    }
    RailSettings settings;
    settings.wish = *wish;
    settings.job = config.job;
    settings.mtu = config.mtu;
    settings.send_depth = kRequestDepth * kRequestFrames;
    // All slices of a request may lie in one of its frames.
    settings.send_slices = kRequestSlices;
    settings.buffers = kBuffers;
    settings.shared_queue = config.shared_receive_queue;
    // Devices' clocks have nothing to do with one another.
    settings.timed = config.timestamps && all.find('+') == std::string::npos;
    auto rail = Rail::make(settings);
    if (!rail) return std::move(rail).error();
    const DevicePort& port = (*rail)->port();
    for (const auto& other : rails_) {
      if (other->port().device == port.device && other->port().port == port.port) {
        return bad_input("devices '" + config.interface + "': " + port.device + " port " +
                         std::to_string(port.port) + " is named twice");
      }
    }
    rails_.push_back(std::move(rail).value());
  }
  return {};
}

void VerbsTransport::describe() {
  std::uint32_t frame = ~std::uint32_t{0}, extra = 0, buffers = 0, slices = ~std::uint32_t{0};
  for (const auto& rail : rails_) {
    frame = std::min(frame, rail->frame_bytes());
    extra = std::max(extra, overhead(rail->port().kind));
    buffers += rail->shared_queue() ? kBuffers : RailSettings{}.own_depth;
    slices = std::min(slices, rail->sends().slices_per_frame());
  }
  capabilities_.name = "verbs";
  capabilities_.max_frame_bytes = frame;
  capabilities_.max_request_bytes = kRequestFrames * frame;
  capabilities_.max_request_slices = slices;
  capabilities_.max_request_frames = kRequestFrames;
  capabilities_.send_depth = kRequestDepth;
  capabilities_.receive_buffers = kBuffers * static_cast<std::uint32_t>(rails_.size());
  capabilities_.wire_overhead_bytes = extra;
  capabilities_.receive_window_bytes = std::uint64_t{buffers} * frame * kWindowShare / kWindowOf;
  capabilities_.join_settle = kJoinSettle;
  capabilities_.replicates_in_network = true;
  capabilities_.loses_frames = true;
  capabilities_.checks_payload = true;  // The invariant CRC of every packet, RoCE's too.
  abilities_.reads = this;
  const bool paced = std::any_of(rails_.begin(), rails_.end(),
                                 [](const auto& rail) { return rail->sends().can_pace(); });
  if (paced) abilities_.pacing = this;
  if (rails_.front()->completions().timed()) {
    abilities_.timestamps = this;
    arrivals_.resize(kBuffers);
  }
}

void VerbsTransport::note_missing(const TransportConfig& config) {
  const std::string where = rails_.front()->port().text();
  if (config.timestamps && abilities_.timestamps == nullptr) {
    missing_.push_back("verbs: " +
                       (rails_.size() > 1 ? "several devices have no clock in common"
                                          : where + " does not stamp completions") +
                       ": arrivals are timed by this process, when it sees them");
  }
}

VerbsTransport::~VerbsTransport() = default;

std::uint64_t VerbsTransport::rail_job(std::size_t rail) const noexcept {
  // Rails may share a network: what a rank sends on one must not reach another's queue pair twice.
  return rail == 0 ? job_ : mix_seed(job_ + rail);
}

PeerAddress VerbsTransport::address() const {
  VerbsAddress out;
  for (const auto& rail : rails_) out.rails[out.rail_count++] = rail->address();
  return encode_address(out);
}

Result<Region> VerbsTransport::register_for(std::span<const std::byte> memory, int access) {
  if (memory.data() == nullptr || memory.empty()) {
    return bad_input("register_memory: the range is empty");
  }
  RegionEntry entry;
  entry.memory = memory;
  for (std::size_t r = 0; r < rails_.size(); ++r) {
    // Written by the device only where `access` says so, hence memory that the caller may write.
    entry.keys[r].reset(
        ibv_reg_mr(rails_[r]->pd(), const_cast<std::byte*>(memory.data()), memory.size(), access));
    if (entry.keys[r] == nullptr) {
      return set_up_error("registering " + std::to_string(memory.size()) + " bytes",
                          rails_[r]->port().text(), errno);
    }
  }
  return hand_out<detail::HandleKind::region>(*this, regions_, std::move(entry));
}

RemoteMemory VerbsTransport::remote_memory(RegionId region, const std::byte* at) const noexcept {
  RemoteMemory out;
  const RegionEntry* const entry = regions_.find(region);
  if (entry == nullptr) return out;
  out.address = reinterpret_cast<std::uintptr_t>(at);
  for (std::size_t r = 0; r < rails_.size(); ++r) out.keys[r] = entry->keys[r]->rkey;
  return out;
}

Result<Endpoint> VerbsTransport::connect(const PeerAddress& peer) {
  const auto address = decode_address(peer);
  if (!address) return address.error();
  if (address->rail_count != rails_.size()) {
    return bad_input("connect: the peer has " + std::to_string(address->rail_count) +
                     " devices and this rank " + std::to_string(rails_.size()) +
                     "; give every rank as many");
  }
  Target target;
  for (std::size_t r = 0; r < rails_.size(); ++r) {
    auto handle = rails_[r]->reach(address->rails[r]);
    if (!handle) return std::move(handle).error();
    target.handles[r] = std::move(handle).value();
    target.qpn[r] = address->rails[r].frames_qpn;
  }
  auto out = hand_out<detail::HandleKind::endpoint>(*this, endpoints_, std::move(target));
  for (std::size_t r = 0; out && r < rails_.size(); ++r) {
    const auto& handles = endpoints_.find(out->id())->handles;
    rails_[r]->reads().add(out->id(), address->rails[r], handles[r].get());
  }
  return out;
}

Result<Membership> VerbsTransport::join(GroupAddress group, JoinAs as) {
  if (group.index >= kGroupsPerJob) {
    return bad_input("join: group " + std::to_string(group.index) + ": must be below " +
                     std::to_string(kGroupsPerJob));
  }
  GroupMember member;
  member.index = group.index;
  member.as = as;
  if (as == JoinAs::receiver) {
    if (auto state = become_member(group.index); !state) return std::move(state).error();
  }
  auto reached = reach_group(group.index, member.target);
  auto out = reached ? hand_out<detail::HandleKind::membership>(*this, members_, std::move(member))
                     : Result<Membership>(std::move(reached).error());
  if (reached && !out) unroute(group.index);
  if (!out && as == JoinAs::receiver) leave(group.index);
  return out;
}

Result<void> VerbsTransport::reach_group(std::uint32_t index, Target& target) {
  for (std::size_t r = 0; r < rails_.size(); ++r) {
    GroupJoin& groups = rails_[r]->groups();
    const std::uint32_t ipv4 = *group_ipv4(rail_job(r), index);
    const auto route = groups.route(ipv4);
    auto handle = route ? rails_[r]->reach(*route) : Result<AddressHandle>(route.error());
    if (handle) {
      target.handles[r] = std::move(handle).value();
      target.qpn[r] = kMulticastQueuePair;
      continue;
    }
    if (route) groups.unroute(ipv4);
    while (r-- > 0) rails_[r]->groups().unroute(*group_ipv4(rail_job(r), index));
    return std::move(handle).error();
  }
  return {};
}

Result<void> VerbsTransport::become_member(std::uint32_t index) {
  if (const auto known = joined_.find(index); known != joined_.end()) {
    ++known->second;
    return {};
  }
  for (std::size_t r = 0; r < rails_.size(); ++r) {
    auto state = rails_[r]->add_group(*group_ipv4(rail_job(r), index));
    if (state) continue;
    while (r-- > 0) rails_[r]->remove_group(*group_ipv4(rail_job(r), index));
    return state;
  }
  joined_.emplace(index, 1);
  return {};
}

void VerbsTransport::unroute(std::uint32_t index) noexcept {
  for (std::size_t r = 0; r < rails_.size(); ++r) {
    rails_[r]->groups().unroute(*group_ipv4(rail_job(r), index));
  }
}

void VerbsTransport::leave(std::uint32_t index) noexcept {
  const auto known = joined_.find(index);
  if (known == joined_.end() || --known->second != 0) return;
  for (std::size_t r = 0; r < rails_.size(); ++r) {
    rails_[r]->remove_group(*group_ipv4(rail_job(r), index));
  }
  joined_.erase(known);
}

void VerbsTransport::release(detail::HandleKind kind, std::uint32_t id) noexcept {
  switch (kind) {
    case detail::HandleKind::region:
      regions_.erase(id);
      return;
    case detail::HandleKind::endpoint:
      for (const auto& rail : rails_) rail->reads().remove(id);
      if (auto target = endpoints_.erase(id)) retire(std::move(*target));
      return;
    case detail::HandleKind::membership:
      auto member = members_.erase(id);
      if (!member) return;
      unroute(member->index);
      if (member->as == JoinAs::receiver) leave(member->index);
      retire(std::move(member->target));
      return;
  }
}

void VerbsTransport::retire(Target target) noexcept {
  for (std::size_t r = 0; r < rails_.size(); ++r) {
    target.last_frame[r] = rails_[r]->sends().added();
    target.last_message[r] = rails_[r]->reads().messages_sent();
  }
  retired_.push_back(std::move(target));
}

std::string VerbsTransport::last_error() const {
  for (const auto& rail : rails_) {
    if (rail->gone.load(std::memory_order_acquire)) {
      return "verbs: " + rail->port().text() +
             ": the device is broken or was removed; see dmesg and `rdma link`";
    }
  }
  for (const auto& rail : rails_) {
    if (!rail->identity().same()) return rail->identity().text(rail->port());
  }
  if (failure_.during == Failure::During::none) {
    for (const auto& rail : rails_) {
      if (auto text = rail->groups().last_error(); !text.empty()) return text;
    }
    for (const auto& rail : rails_) {
      if (auto text = rail->reads().last_error(); !text.empty()) return text;
    }
    return {};
  }
  const std::string where =
      rails_[failure_.rail]->port().text() + " (queue pair " + std::to_string(failure_.qpn) + ")";
  switch (failure_.during) {
    case Failure::During::send:
    case Failure::During::receive:
      return "verbs: " + where +
             (failure_.during == Failure::During::send ? ": a send failed: "
                                                       : ": a receive failed: ") +
             explain_status(static_cast<ibv_wc_status>(failure_.error));
    case Failure::During::post:
      return set_up_error("posting to a queue pair", where, failure_.error).message;
    case Failure::During::regroup:
      return set_up_error("following a group to its new route", where, failure_.error).message;
    default:
      return set_up_error("bringing a queue pair back", where, failure_.error).message;
  }
}

}  // namespace selmcast::verbs

namespace selmcast {

Result<std::unique_ptr<Transport>> open_verbs(const TransportConfig& config) {
  return verbs::VerbsTransport::open(config);
}

}  // namespace selmcast
