#include "sync/sim_rank.h"

#include "sync/policy_coherence.h"

namespace selmcast {

SimRank::SimRank(Rank rank, Engine& engine, Setting setting, Now now)
    : rank_(rank), engine_(engine), setting_(std::move(setting)), now_(std::move(now)) {}

Result<void> SimRank::set_up(std::span<float> parameters, std::span<const std::size_t> layers) {
  layers_ = layers.size();
  const auto world = static_cast<std::uint32_t>(setting_.peers.size());
  if (auto ok = check_parameters(setting_.policy, world, parameters.size_bytes()); !ok) return ok;
  stepper_.emplace(setting_.policy, parameters, *this, setting_.seed, rank_, world);
  engine_.set_keyed(stepper_->keyed());
  engine_.set_table(stepper_->table());
  engine_.set_layers(layers);
  return engine_.set_up(setting_.peers, stepper_->stream());
}

SimRank::~SimRank() {
  end();
}

void SimRank::start(Application application) {
  wakes_at_ = now();
  thread_ = std::thread([this, application = std::move(application)] {
    go_.acquire();
    if (!ended_) result_ = application(*this);
    returned_ = true;
    wakes_at_ = kNever;
    back_.release();
  });
}

void SimRank::block() {
  back_.release();
  go_.acquire();
}

bool SimRank::resume() {
  if (returned_ || !thread_.joinable()) return false;
  const bool ready = waits_for_layer_ ? engine_.failed() || engine_.layer_closed(*waits_for_layer_)
                     : waits_for_round_ ? settled()
                                        : wakes_at_ <= now();
  if (!ready && !ended_) return false;
  waits_for_round_ = false;
  go_.release();
  back_.acquire();
  return true;
}

void SimRank::end() {
  ended_ = true;
  if (!thread_.joinable()) return;
  while (!returned_) resume();
  thread_.join();
}

void SimRank::compute(Duration time) {
  if (ended_) return;
  wakes_at_ = now() + time;
  block();
}

void SimRank::push() {
  engine_.push();
  ++pushed_;
}

void SimRank::push_part(std::size_t first, std::size_t count) {
  engine_.push({first, count});
  ++pushed_;
}

bool SimRank::settled() const noexcept {
  return engine_.exchanges_closed() == pushed_ || engine_.failed();
}

Result<RoundReport> SimRank::wait() {
  while (!settled() && !ended_) {
    waits_for_round_ = true;
    block();
  }
  if (engine_.failed()) return engine_.error();
  if (ended_) return failed("rank " + std::to_string(rank_) + " was ended");
  return engine_.report();
}

void SimRank::push_layer(std::size_t layer) {
  engine_.push_layer(layer);
  if (layers_pushed_++ == 0) ++pushed_;
  layers_pushed_ %= layers_;
}

Result<void> SimRank::wait_layer(std::size_t layer) {
  while (!engine_.layer_closed(layer) && !engine_.failed() && !ended_) {
    waits_for_round_ = true;
    waits_for_layer_ = layer;
    block();
    waits_for_layer_.reset();
  }
  if (engine_.failed()) return engine_.error();
  if (ended_) return failed("rank " + std::to_string(rank_) + " was ended");
  return {};
}

Result<void> SimRank::pass(bool last, std::vector<RoundReport>& ended) {
  last ? engine_.push_last() : engine_.push();
  ++pushed_;
  auto closed = wait();
  if (!closed) return std::move(closed).error();
  ended.insert(ended.end(), engine_.ended().begin(), engine_.ended().end());
  return {};
}

}  // namespace selmcast
