#include "simulate/sim_rank.h"

namespace selmcast {

SimRank::SimRank(Rank rank, Setting setting, Now now)
    : rank_(rank), setting_(std::move(setting)), now_(std::move(now)) {}

Result<void> SimRank::set_up(std::span<float> parameters, std::span<const std::size_t> layers) {
  layers_ = layers.size();
  auto runtime = RankRuntime::make(*setting_.transport, setting_.rank, setting_.peers, parameters,
                                   layers, *this);
  if (!runtime) return std::move(runtime).error();
  runtime_ = std::move(runtime).value();
  setting_.ready(runtime_->driver());
  return {};
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
  const bool ready = waits_for_layer_ ? runtime_->driver().failed() ||
                                            runtime_->driver().layer_closed(*waits_for_layer_)
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

Result<RoundReport> SimRank::wait() {
  while (!settled() && !ended_) {
    waits_for_round_ = true;
    block();
  }
  if (runtime_->driver().failed()) return runtime_->driver().error();
  if (ended_) return failed("rank " + std::to_string(rank_) + " was ended");
  return runtime_->driver().report();
}

void SimRank::push_layer(std::size_t layer) {
  runtime_->driver().push_layer(layer);
  if (layers_pushed_++ == 0) count_pushed();
  layers_pushed_ %= layers_;
}

Result<void> SimRank::wait_layer(std::size_t layer) {
  while (!runtime_->driver().layer_closed(layer) && !runtime_->driver().failed() && !ended_) {
    waits_for_round_ = true;
    waits_for_layer_ = layer;
    block();
    waits_for_layer_.reset();
  }
  if (runtime_->driver().failed()) return runtime_->driver().error();
  if (ended_) return failed("rank " + std::to_string(rank_) + " was ended");
  return {};
}

}  // namespace selmcast
