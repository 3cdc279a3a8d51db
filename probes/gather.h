// Waiting until several ranks have written their key into the store.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/wire.h"
#include "store/keys.h"
#include "store/rendezvous.h"

namespace selmcast {

/// Keys "<stem>/<rank>" of a set of ranks. Asks the local copy only; never blocks.
class Gather {
 public:
  void start(std::string stem, std::vector<Rank> ranks);
  /// True once all keys are there; values() is complete then.
  bool poll(const Rendezvous& rendezvous);
  /// First rank whose key is missing. Only while poll() says false.
  Rank missing() const noexcept { return ranks_[values_.size()]; }
  const std::vector<Bytes>& values() const noexcept { return values_; }
  std::string key(Rank rank) const { return keys::of_rank(stem_, rank); }

 private:
  std::string stem_;
  std::vector<Rank> ranks_;
  std::vector<Bytes> values_;  ///< Of ranks_[0..size).
};

}  // namespace selmcast
