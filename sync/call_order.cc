#include "sync/call_order.h"

namespace selmcast {

Error CallOrder::misuse(const char* call, const std::string& why) const {
  return bad_input("rank " + std::to_string(self_) + ": " + call + "(): " + why);
}

Result<void> CallOrder::add(const char* call) const {
  switch (stage_) {
    case Stage::joined:
      return {};
    case Stage::starting:
      return misuse(call, "the job did not start; join it anew");
    case Stage::running:
    case Stage::finished:
      return misuse(call, "parameters are added once to a Worker");
    case Stage::left:
      break;
  }
  return misuse(call, "this rank has left the job; join it anew");
}

void CallOrder::started(std::size_t layers) {
  handed_over_ = std::vector<std::atomic<std::uint8_t>>(layers);
  stage_ = Stage::running;
}

Result<void> CallOrder::in_job(const char* call) const {
  if (running()) return {};
  if (has_left()) return misuse(call, "this rank has left the job; join it anew");
  return misuse(call, "add_parameters() or add_layers() comes first, and must have succeeded");
}

Result<void> CallOrder::begin(const char* call, bool under_way) const {
  if (stage_ == Stage::finished) {
    return misuse(call,
                  "finish() has ended this rank's rounds; only leave() and what needs no "
                  "round may follow");
  }
  if (!handed_over_.empty()) {
    return misuse(call, "this Worker has layers, which push_layer() hands over");
  }
  if (pushed_) return misuse(call, "a round is under way; wait() for it first");
  if (under_way) {
    return misuse(call, "a round that step() began is under way; finish() ends it");
  }
  return {};
}

Result<void> CallOrder::wait() const {
  if (handed_over_.empty()) {
    return pushed_ ? Result<void>() : misuse("wait", "there is no round under way; push() first");
  }
  const std::size_t count = handed_over_count_.load(std::memory_order_relaxed);
  if (count == handed_over_.size()) return {};
  return misuse("wait", std::to_string(count) + " of " + std::to_string(handed_over_.size()) +
                            " layers were handed over; push_layer() the others first");
}

void CallOrder::waited() noexcept {
  pushed_ = false;
  for (auto& layer : handed_over_) layer.store(0, std::memory_order_relaxed);
  handed_over_count_.store(0, std::memory_order_relaxed);
}

Result<void> CallOrder::known(const char* call, std::size_t layer) const {
  if (layer < handed_over_.size()) return {};
  return misuse(call, "layer " + std::to_string(layer) + " does not exist; there are " +
                          std::to_string(handed_over_.size()));
}

Result<void> CallOrder::hand_over(std::size_t layer) {
  if (auto ok = known("push_layer", layer); !ok) return ok;
  if (handed_over_[layer].exchange(1, std::memory_order_relaxed) != 0) {
    return misuse("push_layer", "layer " + std::to_string(layer) +
                                    " was handed over in this round; wait() comes before the next");
  }
  handed_over_count_.fetch_add(1, std::memory_order_relaxed);
  return {};
}

}  // namespace selmcast
