// The engine where every rank begins rounds in its own time: what joins sync/free/ to the
// mailboxes.
#include "sync/engine.h"
#include "sync/free/free_rounds.h"
#include "sync/parker.h"

namespace selmcast {

Result<void> Engine::set_up_free() {
  const std::uint32_t members_max = selection_members_max(config_.frame_bytes);
  if (config_.free->online && config_.world > members_max) {
    return bad_input(
        "rank " + std::to_string(config_.self) +
        ": with eta in pace=ssp:s,eta a request lists all workers in one frame. Frames of " +
        std::to_string(config_.frame_bytes) + " bytes have room for " +
        std::to_string(members_max) + ", but the job has " + std::to_string(config_.world) +
        " and needs frames of " + std::to_string(kFrameHeaderBytes + 2 * config_.world) +
        " bytes; use a larger MTU on all hosts, fewer workers, or drop eta");
  }
  SELMCAST_CHECK(config_.mix == MixKind::average && !config_.deterministic &&
                     config_.element == WireElement::f32,
                 "free rounds average float32");
  free_ = std::make_unique<FreeRounds>(  // set-up: made once
      *port_, config_, shape_,
      FreeMemory{parameters_, encoded_, stream_region_.id(), accumulator_.get()});
  for (auto& report : ended_) {
    report.receivers.reserve(config_.world);  // set-up:
    report.given_up.reserve(config_.world);   // set-up:
  }
  return {};
}

void Engine::push_last() noexcept {
  pushed_last_.store(true, std::memory_order_relaxed);
  push();
}

std::size_t Engine::read_free_mail() noexcept {
  std::size_t done = 0;
  if (auto offer = mailbox_.take()) {
    accept_offer(std::move(offer));
    ++done;
  }
  // An epoch begins at each rank's own next round, so the round that was agreed on says only that
  // all ranks are prepared.
  if (mailbox_.activated()) free_->activate();
  if (std::unique_ptr<EpochState> replaced; free_->retired(replaced)) {
    mailbox_.retire(std::move(replaced));
    ++done;
  }
  return done;
}

std::size_t Engine::progress_free(TimePoint now) noexcept {
  std::size_t done = 0;
  // Boundaries are counted by closed_, which only this thread writes.
  if (!at_boundary_ &&
      pushed_.load(std::memory_order_acquire) != closed_.load(std::memory_order_relaxed)) {
    at_boundary_ = true;
    free_->arrive(pushed_last_.load(std::memory_order_relaxed));
    ++done;
  }
  done += free_->progress(now);
  while (const auto rank = free_->next_suspect()) {
    suspect(*rank, "made no progress within the timeout");
  }
  if (const auto bad = free_->mismatch()) {
    fail_mismatch(*bad);
    return done;
  }
  if (const auto& error = free_->join_error()) {
    const std::string self = std::to_string(config_.self);  // failure: ends the job
    fail(selmcast::failed("rank " + self + ": " + error->message));
  }
  port_->flush();
  if (port_->broken()) fail_broken();
  if (free_->passed()) {
    close_boundary();
    ++done;
  }
  return done;
}

void Engine::close_boundary() noexcept {
  ended_count_ = 0;
  for (RoundReport& report : free_->reports()) std::swap(ended_[ended_count_++], report);
  free_->clear_reports();
  if (ended_count_ > 0) report_ = ended_[ended_count_ - 1];
  at_boundary_ = false;
  closed_.store(closed_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  unpark(closed_);
}

}  // namespace selmcast
