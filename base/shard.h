// A part of something that is cut evenly.
#pragma once

#include <cstdint>

namespace selmcast {

/// Part `index` of `of` parts of a stream, cut between frames.
struct Shard {
  std::uint32_t index = 0;
  std::uint32_t of = 1;

  bool operator==(const Shard&) const = default;
};

}  // namespace selmcast
