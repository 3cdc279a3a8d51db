// A model of a device with one landing queue: receives in a row, which frames take as they arrive,
// and completions that the rank sees later.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <utility>
#include <vector>

#include "multicast/landing_queue.h"
#include "transport/transport.h"

namespace selmcast::landing_test {

using Bytes = std::vector<std::byte>;

class LandingDevice final : public Transport, public PlacedReceives {
 public:
  explicit LandingDevice(std::uint32_t depth) : depth_(depth) {
    capabilities_.max_frame_bytes = 2048;
  }

  /// A frame reaches the device: it is written at once, and completes when it is polled.
  void arrive(const Bytes& frame) {
    if (posted_.empty()) {
      ++lost;
      return;
    }
    const LandingRequest landing = posted_.front();
    posted_.pop_front();
    // The buffer is junk where the payload goes elsewhere.
    Slot slot{landing, Bytes(frame.size(), std::byte{0xEE})};
    const std::size_t head = std::min<std::size_t>(landing.header_bytes, frame.size());
    const std::size_t landed =
        landing.place == nullptr ? 0 : std::min<std::size_t>(landing.bytes, frame.size() - head);
    std::copy_n(frame.begin(), head, slot.data.begin());
    if (landed > 0) std::memcpy(landing.place, frame.data() + head, landed);
    std::copy(frame.begin() + static_cast<std::ptrdiff_t>(head + landed), frame.end(),
              slot.data.begin() + static_cast<std::ptrdiff_t>(head + landed));
    slot.landed = static_cast<std::uint32_t>(landed);
    completed_.push_back(std::move(slot));
  }
  /// An error of the device: everything posted is dropped, and what has not been polled with it.
  void restart() {
    posted_.clear();
    completed_.clear();
    ++drops_;
  }
  /// The oldest completion; valid until the next one.
  bool next(Completion& out) {
    if (completed_.empty()) return false;
    held_ = std::move(completed_.front());
    completed_.pop_front();
    const auto bytes = static_cast<std::uint32_t>(held_.data.size());
    out = {.kind = Completion::Kind::receive,
           .bytes = bytes,
           .frame_bytes = bytes,
           .data = held_.data.data(),
           .user = held_.landing.user};
    if (held_.landed > 0) {
      out.landed = held_.landing.place;
      out.room = held_.data.data() + held_.landing.header_bytes;
      out.landed_bytes = held_.landed;
    }
    return true;
  }
  /// Whether a posted receive, or one that completed and was not polled, names bytes in [at, end).
  bool names(const std::byte* at, const std::byte* end) const {
    return std::any_of(posted_.begin(), posted_.end(), [&](const LandingRequest& one) {
      return one.place != nullptr && one.place < end && one.place + one.bytes > at;
    });
  }
  bool names_twice() const {
    std::vector<const std::byte*> places;
    for (const auto& one : posted_) {
      if (one.place != nullptr) places.push_back(one.place);
    }
    std::sort(places.begin(), places.end());
    return std::adjacent_find(places.begin(), places.end()) != places.end();
  }
  std::size_t posted() const { return posted_.size(); }

  PeerAddress address() const override { return {}; }
  Result<Region> register_memory(std::span<const std::byte>) override { return failed("unused"); }
  Result<Endpoint> connect(const PeerAddress&) override { return failed("unused"); }
  Result<Membership> join(GroupAddress, JoinAs) override { return failed("unused"); }
  PostOutcome post_sends(std::span<const SendRequest>) noexcept override { return {}; }
  PostOutcome post_receives(std::span<const ReceiveRequest>) noexcept override { return {}; }
  std::uint32_t placed_depth() const noexcept override { return depth_; }
  Result<Region> register_places(std::span<std::byte>) override { return failed("unused"); }
  Result<Membership> join_placed(GroupAddress) override { return failed("unused"); }
  PostOutcome post_placed(MembershipId, std::span<const LandingRequest> all) noexcept override {
    PostOutcome out;
    for (const auto& one : all) {
      if (refuse > 0 || posted_.size() == depth_) {
        if (refuse > 0) --refuse;
        out.state = PostState::backpressure;
        break;
      }
      posted_.push_back(one);
      ++out.accepted;
    }
    return out;
  }
  bool take_back(MembershipId) noexcept override {
    if (!gives_back) return false;
    ++taken_back;
    restart();
    return true;
  }
  std::uint32_t drops(MembershipId) const noexcept override { return drops_; }
  std::size_t poll(std::span<Completion>) noexcept override { return 0; }
  void wait(Duration) noexcept override {}
  void wake() noexcept override {}
  TransportCounters counters() const noexcept override { return {}; }
  std::string last_error() const override { return {}; }

  int refuse = 0;  ///< Posts to refuse.
  bool gives_back = true;
  int taken_back = 0, lost = 0;

 protected:
  void release(detail::HandleKind, std::uint32_t) noexcept override {}

 private:
  struct Slot {
    LandingRequest landing;
    Bytes data;
    std::uint32_t landed = 0;
  };
  std::uint32_t depth_;
  std::deque<LandingRequest> posted_;
  std::deque<Slot> completed_;
  Slot held_;
  std::uint32_t drops_ = 0;
};

}  // namespace selmcast::landing_test
