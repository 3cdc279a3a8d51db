// Frames that the transport puts in place (mix=cumulative): what of it concerns the engine.
#include <algorithm>

#include "sync/engine.h"

namespace selmcast {

void Engine::set_up_landing() {
  PlacedReceives* const receives = transport_.abilities().placed_receives;
  if (config_.table == nullptr || receives == nullptr) return;
  auto made = LandingRows::make(*receives, config_.table, shape_, config_.job);
  if (made) {
    landing_ = std::move(made).value();
  } else {
    landing_refused_ = "frames are copied into place, not put there by the device: " +
                       made.error().message;  // set-up:
  }
}

std::uint64_t Engine::landing_window() const noexcept {
  const std::uint64_t depth = transport_.abilities().placed_receives->placed_depth();
  // The rest is for repairs that other receivers of the group asked for.
  const std::uint64_t frames = std::max(depth / 4 * 3, std::uint64_t{1});
  return std::min(transport_.capabilities().sender_window_bytes, frames * config_.frame_bytes);
}

std::vector<std::uint32_t> Engine::reserve_landing(const Program& program) {
  std::vector<std::uint32_t> out;
  if (landing_ == nullptr) return out;
  std::size_t most = 0;
  for (const RoundPlan& plan : program.cycle) {
    const auto& groups = plan.sender_groups;
    out.insert(out.end(), groups.begin(), groups.end());
    most = std::max(most, groups.size());
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  landing_->reserve(most);
  return out;
}

std::string Engine::landing_notice() const {
  if (!landing_refused_.empty()) return landing_refused_;
  const std::uint32_t refused = groups_refused_.load(std::memory_order_relaxed);
  if (refused == 0) return {};
  return "frames of " + std::to_string(refused) +  // set-up: for people
         " groups are copied into place, not put there by the device, which has no room for more "
         "landing queues";
}

void Engine::on_landed(LandingQueue& queue, const Completion& completion, TimePoint now) noexcept {
  on_parsed(queue.arrived(completion), now);
}

bool Engine::close_landing(Rank sender) noexcept {
  const bool whole = current_->receiver->state(sender) == SenderState::complete &&
                     !current_->receiver->digest_mismatch();
  if (landing_->close(sender, whole)) return true;
  fail(selmcast::failed("rank " + std::to_string(config_.self) + ": round " +
                        std::to_string(round_) + ": receives posted for rank " +
                        std::to_string(sender) +
                        " cannot be taken back: " + transport_.last_error()));
  return false;
}

}  // namespace selmcast
