// Which seeds a test of random jobs plays.
#pragma once

#include <cstdint>
#include <cstdlib>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SELMCAST_TEST_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SELMCAST_TEST_SANITIZED 1
#endif
#endif

namespace selmcast::testing_jobs {

struct Seeds {
  std::uint64_t first = 1, last = 1;
};

/// 1 to `count`, or the one in SELMCAST_SEED. Under a sanitizer, which looks for other errors than
/// broken rules and takes many times as long, a fifth of them.
inline Seeds seeds(std::uint64_t count) {
  if (const char* chosen = std::getenv("SELMCAST_SEED"); chosen != nullptr) {
    const std::uint64_t seed = std::strtoull(chosen, nullptr, 10);
    return {seed, seed};
  }
#ifdef SELMCAST_TEST_SANITIZED
  count = (count + 4) / 5;
#endif
  return {1, count};
}

}  // namespace selmcast::testing_jobs
