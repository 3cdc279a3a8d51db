// A seeded shuffle with the same outcome on every machine.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "base/random.h"

namespace selmcast {

/// Fisher-Yates (Durstenfeld, CACM 7(7), 1964), in place. Needs fewer than 2^32 values.
template <class T>
void shuffle(std::vector<T>& values, SplitMix64& random) {
  for (std::size_t i = values.size(); i > 1; --i) {
    std::swap(values[i - 1], values[random.below(static_cast<std::uint32_t>(i))]);
  }
}

}  // namespace selmcast
