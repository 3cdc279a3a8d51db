// What the conformance suite needs of a backend under test.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <string>

#include "base/result.h"
#include "transport/transport.h"

namespace selmcast::conformance {

/// A rank that the test will kill. It lives where death is real: in a process of its own, or as a
/// simulated host. It receives only.
struct Mortal {
  std::size_t rank = 0;
  /// Polls and gives back; otherwise it joins kMortalGroup and never polls.
  bool polls = true;
};
inline constexpr std::uint32_t kMortalGroup = 2;

/// Several transports of one backend in this process, all of one job. One thread drives them.
class Harness {
 public:
  Harness() = default;
  Harness(const Harness&) = delete;
  Harness& operator=(const Harness&) = delete;
  virtual ~Harness() = default;

  /// Not for the mortal rank.
  virtual Transport& at(std::size_t rank) = 0;
  virtual PeerAddress address(std::size_t rank) = 0;
  /// Lets `time` pass, virtual or real.
  virtual void pass(Duration time) = 0;
  /// Closes the transport of a rank in good order; at() must not name it any more.
  virtual void close(std::size_t rank) = 0;
  /// The mortal rank vanishes without a word.
  virtual void kill_mortal() = 0;
};

struct Backend {
  std::string name;
  /// Under light load every frame arrives exactly once, unharmed.
  bool clean = true;
  /// Peers of a killed rank get a `lost` completion.
  bool notices_death = true;
  /// post_sends() refuses only when send_depth or a slow receiver is the reason.
  bool refuses_at_will = false;
  /// wait() and wake() mean something: time is real.
  bool real_time = false;
  /// An Error of kind `unavailable` skips the test.
  std::function<Result<std::unique_ptr<Harness>>(std::size_t ranks, std::optional<Mortal> mortal)>
      open;
};

inline void PrintTo(const Backend& backend, std::ostream* out) {
  *out << backend.name;
}

}  // namespace selmcast::conformance
