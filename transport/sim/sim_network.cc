#include "transport/sim/sim_network.h"

#include <utility>

#include "transport/sim/sim_core.h"

namespace selmcast {

SimNetwork::SimNetwork(SimConfig config)
    : core_(std::make_unique<detail::SimCore>(std::move(config))) {}
SimNetwork::~SimNetwork() = default;

const Clock& SimNetwork::clock() const noexcept {
  return core_->clock();
}
std::unique_ptr<Transport> SimNetwork::attach(Rank rank) {
  return core_->attach(rank);
}
TimePoint SimNetwork::next_event() const noexcept {
  return core_->next_event();
}
void SimNetwork::advance_to(TimePoint to) {
  core_->advance_to(to);
}
void SimNetwork::set_link(Rank rank, const SimLink& link) {
  core_->set_link(rank, link);
}
void SimNetwork::partition(Rank a, Rank b, bool cut) {
  core_->partition(a, b, cut);
}
void SimNetwork::crash(Rank rank, Duration notice) {
  core_->crash(rank, notice);
}
std::uint64_t SimNetwork::trace_hash() const noexcept {
  return core_->trace_hash();
}

std::uint64_t SimNetwork::wire_bytes_sent(Rank rank) const noexcept {
  return core_->port(rank).wire_sent;
}
std::uint64_t SimNetwork::wire_bytes_received(Rank rank) const noexcept {
  return core_->port(rank).wire_received;
}
std::uint64_t SimNetwork::tail_dropped_frames(Rank rank) const noexcept {
  return core_->port(rank).tail_drops;
}
std::uint64_t SimNetwork::oversize_requests(Rank rank) const noexcept {
  return core_->port(rank).oversize;
}
std::size_t SimNetwork::buffers_in_use() const noexcept {
  return core_->pool().in_use();
}

}  // namespace selmcast
