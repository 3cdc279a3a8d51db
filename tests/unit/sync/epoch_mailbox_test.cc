#include "sync/rounds/epoch_mailbox.h"

#include <gtest/gtest.h>

#include <thread>

#include "tests/unit/sync/interleavings.h"

namespace selmcast {
namespace {

using interleavings::Data;
using interleavings::Explorer;

/// A plan of the model: written when made and when destroyed, read in between.
struct Plan {
  explicit Plan(int number) { value.write(number); }
  ~Plan() {
    value.write(-1);
    --alive;
  }
  Data value;
  inline static int alive = 0;
};

constexpr int kEpochs = 2;

/// What both threads share in one run.
template <template <class> class Atomic>
struct Job {
  EpochMailbox<Plan, Atomic> mailbox;
  std::unique_ptr<Plan> current, pending;  ///< The driver's.
};

/// Offers kEpochs plans, each after the one before was switched to.
template <class Job>
void control(Job& job) {
  auto& model = Explorer::running();
  std::optional<std::uint32_t> promised;
  for (int epoch = 1; epoch <= kEpochs; ++epoch) {
    ++Plan::alive;
    job.mailbox.offer(std::make_unique<Plan>(epoch));
    for (;;) {
      const auto seen = model.stores();
      if (const auto round = job.mailbox.accepted()) {
        if (promised && *round <= *promised) model.fail("an old promise");
        promised = round;
        job.mailbox.activate(*round);
        break;
      }
      model.await_store_after(seen);
    }
    for (;;) {
      const auto seen = model.stores();
      if (job.mailbox.switched()) break;
      model.await_store_after(seen);
    }
    if (Plan::alive != 1) model.fail("a replaced plan is still there");
  }
}

/// Runs rounds under the plan in force, as the driver does.
template <class Job>
void driver(Job& job) {
  auto& model = Explorer::running();
  int in_force = 0;
  std::uint32_t promised = 0;
  for (std::uint32_t round = 0; in_force < kEpochs; ++round) {
    const auto seen = model.stores();
    if (job.current && job.current->value.read() != in_force) model.fail("another plan's value");
    if (job.pending == nullptr && (job.pending = job.mailbox.take())) {
      if (job.pending->value.read() != in_force + 1) model.fail("plans came out of order");
      promised = round;
      job.mailbox.accept(round);
      continue;
    }
    const auto first = job.pending == nullptr ? std::nullopt : job.mailbox.activated();
    if (first) {
      if (*first < promised) model.fail("an old activation");
      ++in_force;
      auto old = std::exchange(job.current, std::move(job.pending));
      job.mailbox.retire(std::move(old));
      continue;
    }
    model.await_store_after(seen);
  }
}

template <template <class> class Atomic>
Explorer::Bodies make_bodies() {
  Plan::alive = 0;
  auto job = std::make_shared<Job<Atomic>>();
  return {[job] { control(*job); }, [job] { driver(*job); }};
}

TEST(EpochMailbox, EveryInterleavingHandsPlansOverWithoutARace) {
  Explorer explorer;
  const auto schedules = explorer.explore(make_bodies<interleavings::Atomic>);
  EXPECT_EQ(explorer.error(), "");
  std::printf("%llu schedules\n", static_cast<unsigned long long>(schedules));
  EXPECT_GT(schedules, 100U) << "too few to be all of them";
}

/// std::memory_order_release weakened to relaxed: what the detector must find.
template <class T>
class Unordered : public interleavings::Atomic<T> {
 public:
  using interleavings::Atomic<T>::Atomic;
  void store(T value, std::memory_order) {
    interleavings::Atomic<T>::store(value, std::memory_order_relaxed);
  }
};

TEST(EpochMailbox, TheDetectorFindsAPublicationWithoutRelease) {
  Explorer explorer;
  explorer.explore(make_bodies<Unordered>);
  EXPECT_NE(explorer.error().find("without order"), std::string::npos) << explorer.error();
}

/// Plain data for the threads of the stress test; TSan watches it.
struct Numbers {
  explicit Numbers(std::uint32_t n) : first(n), second(~n) {}
  std::uint32_t first, second;
};

TEST(EpochMailbox, StressWithRealThreads) {
  constexpr std::uint32_t kMany = 5000;
  EpochMailbox<Numbers> mailbox;
  std::atomic<std::uint64_t> wrong{0};
  std::thread control([&] {
    for (std::uint32_t epoch = 1; epoch <= kMany; ++epoch) {
      mailbox.offer(std::make_unique<Numbers>(epoch));
      std::optional<std::uint32_t> round;
      while (!(round = mailbox.accepted())) std::this_thread::yield();
      mailbox.activate(*round + epoch % 3);
      while (!mailbox.switched()) std::this_thread::yield();
    }
  });
  std::unique_ptr<Numbers> current, pending;
  std::uint32_t in_force = 0;
  for (std::uint32_t round = 0; in_force < kMany; ++round) {
    if (current && (current->first != in_force || current->second != ~in_force)) ++wrong;
    if (pending == nullptr) {
      pending = mailbox.take();
      if (pending) mailbox.accept(round);
    } else if (const auto first = mailbox.activated(); first && round >= *first) {
      if (pending->first != ++in_force) ++wrong;
      mailbox.retire(std::exchange(current, std::move(pending)));
    } else {
      std::this_thread::yield();
    }
  }
  control.join();
  EXPECT_EQ(wrong.load(), 0U);
}

}  // namespace
}  // namespace selmcast
