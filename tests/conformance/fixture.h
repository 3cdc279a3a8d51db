// The fixture of the conformance suite: ranks with registered memory, numbered frames, pumping.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/wire.h"
#include "tests/conformance/harness.h"

namespace selmcast::conformance {

using namespace std::chrono_literals;

/// The first bytes of each frame that the suite sends; the rest follows from them.
struct Label {
  std::uint32_t source = 0;
  std::uint32_t channel = 0;  ///< Which destination was meant; the test's own numbering.
  std::uint32_t number = 0;
  auto operator<=>(const Label&) const = default;
};
inline constexpr std::uint32_t kLabelBytes = 12;

inline std::byte filler(const Label& label, std::size_t i) {
  return static_cast<std::byte>(label.source * 31 + label.channel * 17 + label.number * 7 + i);
}

/// Fills `at` with a frame of `bytes` (at least kLabelBytes).
inline void write_frame(const Label& label, std::byte* at, std::size_t bytes) {
  store_le(at, label.source);
  store_le(at + 4, label.channel);
  store_le(at + 8, label.number);
  for (std::size_t i = kLabelBytes; i < bytes; ++i) at[i] = filler(label, i);
}

using Frame = std::vector<std::byte>;

/// The label of a frame; fails the test if its bytes are not those of write_frame().
inline Label check_frame(std::span<const std::byte> frame) {
  if (frame.size() < kLabelBytes) {
    ADD_FAILURE() << "a frame of " << frame.size() << " bytes was never sent";
    return {};
  }
  const Label label{load_le<std::uint32_t>(frame.data()), load_le<std::uint32_t>(frame.data() + 4),
                    load_le<std::uint32_t>(frame.data() + 8)};
  for (std::size_t i = kLabelBytes; i < frame.size(); ++i) {
    if (frame[i] == filler(label, i)) continue;
    ADD_FAILURE() << "frame " << label.number << " of " << label.source << " differs at byte " << i;
    break;
  }
  return label;
}

/// One rank as the suite drives it.
struct Peer {
  std::vector<std::byte> memory;
  std::size_t used = 0;
  std::vector<Endpoint> endpoints;  ///< By rank; the own one is empty.
  Region region;

  std::vector<Frame> frames;  ///< Received, in order.
  std::vector<Completion> sends;
  std::vector<Completion> reads;
  std::vector<EndpointId> lost;
  bool hold = false;             ///< Keep receive buffers in `held` instead of giving them back.
  std::vector<Completion> held;  ///< Lent at present.

  /// Fresh registered memory, never handed out again.
  std::byte* take(std::size_t bytes) {
    EXPECT_LE(used + bytes, memory.size()) << "the test needs a larger arena";
    std::byte* at = memory.data() + used;
    used += bytes;
    return at;
  }
  std::vector<Label> labels() const {
    std::vector<Label> out;
    for (const Frame& frame : frames) out.push_back(check_frame(frame));
    return out;
  }
};

class Conformance : public testing::TestWithParam<Backend> {
 protected:
  static constexpr Duration kDeadline = 20s;  // Reached by failures only.
  static constexpr Duration kQuiet = 30ms;    // Nothing that should not come comes within it.

  /// Opens `ranks` transports, registers memory and connects everyone. Skips if unavailable.
  /// The mortal rank's Peer stays empty.
  void open(std::size_t ranks, std::optional<Mortal> mortal = std::nullopt);
  Transport& at(std::size_t rank) { return harness_->at(rank); }
  const Capabilities& caps() { return harness_->at(0).capabilities(); }
  bool ordered() { return GetParam().clean && !caps().loses_frames; }
  Destination to(std::size_t from, std::size_t peer) {
    return Destination::to(peers[from].endpoints[peer]);
  }
  Membership join(std::size_t rank, std::uint32_t group, JoinAs as) {
    auto membership = at(rank).join({group}, as);
    if (membership) return std::move(membership).value();
    ADD_FAILURE() << membership.error().message;
    return {};
  }
  /// Lets joins take effect.
  void settle() { harness_->pass(caps().join_settle + 1ms); }

  /// Posts a request, waiting for room. `slices` must stay readable until this returns.
  void post(std::size_t from, Destination destination, std::span<const LocalSlice> slices,
            std::uint32_t frame_bytes = 0, std::uint64_t user = 0);
  /// Posts one labelled frame of `bytes`; `user` is its number.
  void send(std::size_t from, Destination destination, const Label& label,
            std::uint32_t bytes = 64);
  LocalSlice slice(std::size_t rank, const std::byte* data, std::uint32_t bytes) {
    return {data, bytes, peers[rank].region.id()};
  }

  /// Polls everyone once; true if anything came.
  bool poll_all();
  /// Drives everyone until `done` holds; false when the deadline passes first.
  bool pump(const std::function<bool()>& done);
  /// Drives everyone for a while in which nothing more should come.
  void pump_quietly(Duration time = kQuiet);
  void give_back(std::size_t rank, const Completion& completion);
  void kill_mortal() { harness_->kill_mortal(); }
  /// The rank (not 0) gives back what it holds and closes.
  void close(std::size_t rank);

  std::vector<Peer> peers;

 private:
  void record(std::size_t rank, const Completion& completion);
  std::unique_ptr<Harness> harness_;
  std::vector<bool> elsewhere_;  // Not driven by this thread.

 protected:
  void TearDown() override;
};

/// In a test's body: opens or skips.
#define SELMCAST_OPEN_OR_SKIP(...)                \
  do {                                            \
    open(__VA_ARGS__);                            \
    if (IsSkipped() || HasFatalFailure()) return; \
  } while (false)

}  // namespace selmcast::conformance
