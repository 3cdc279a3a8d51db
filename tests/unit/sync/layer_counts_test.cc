// Layers handed over by two application threads at the same time, in every order.
#include "sync/rounds/layer_counts.h"

#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <memory>

#include "tests/unit/sync/interleavings.h"

namespace selmcast {
namespace layer_counts_test {

using interleavings::Data;
using interleavings::Explorer;

/// What HandOver and LockStep share between threads, for one or two layers.
template <template <class> class Atomic>
struct LayeredJob {
  std::array<LayerCounts<Atomic>, 2> layers;
  RoundOpening<Atomic> opening;
  Atomic<std::uint32_t> pushed{0}, closed{0};  ///< HandOver's: rounds.
  std::array<Data, 2> memory;                  ///< Of each layer.
  Data report;                                 ///< Of a round.
  std::uint32_t rounds = 1;
  std::size_t count = 2;  ///< Of the layers.
};

int pushed_value(std::uint32_t round, std::size_t layer) {
  return static_cast<int>(10 * round + layer + 1);
}

/// Until `ready()`, looking again after every store of another thread.
template <class Ready>
void await(Ready ready) {
  auto& model = Explorer::running();
  for (;;) {
    const auto seen = model.stores();
    if (ready()) return;
    model.await_store_after(seen);
  }
}

/// HandOver::push_layer().
template <class Job>
void hand_over(Job& job, std::uint32_t round, std::size_t layer) {
  job.memory[layer].write(pushed_value(round, layer));
  if (job.opening.first_of(job.count)) {
    job.pushed.store(job.pushed.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }
  if (!job.layers[layer].push()) Explorer::running().fail("a layer was not the application's");
}

/// An application thread that does nothing but hand its layer over.
template <class Job>
void push_only(Job& job, std::size_t own) {
  hand_over(job, 1, own);
}

/// One that hands both over, last one first, takes them back one by one, and waits for the round.
template <class Job>
void application(Job& job) {
  for (std::uint32_t round = 1; round <= job.rounds; ++round) {
    for (std::size_t l = job.count; l-- > 0;) hand_over(job, round, l);
    for (std::size_t l = 0; l < job.count; ++l) {
      const auto& counts = job.layers[l];
      await([&] { return counts.closed().load(std::memory_order_acquire) == counts.pushed(); });
      if (job.memory[l].read() != -pushed_value(round, l)) {
        Explorer::running().fail("a layer came back before it was mixed");
      }
    }
    const auto want = job.pushed.load(std::memory_order_relaxed);
    if (want != round) Explorer::running().fail("a round was begun twice, or not at all");
    await([&] { return job.closed.load(std::memory_order_acquire) == want; });
    if (job.report.read() != static_cast<int>(round)) Explorer::running().fail("an old report");
  }
}

/// The driver: what LockStep does as it begins, closes and ends layers of a round.
template <class Job>
void drive(Job& job) {
  auto& model = Explorer::running();
  for (std::uint32_t round = 1; round <= job.rounds; ++round) {
    await([&] { return job.pushed.load(std::memory_order_acquire) == round; });
    std::array<bool, 2> given_back{};
    for (std::size_t open = job.count; open > 0;) {
      const auto seen = model.stores();
      bool any = false;
      for (std::size_t l = 0; l < job.count; ++l) {
        if (given_back[l] || !job.layers[l].ready(round - 1)) continue;
        if (job.memory[l].read() != pushed_value(round, l)) model.fail("an old layer was sent");
        job.memory[l].write(-pushed_value(round, l));
        given_back[l] = any = true;
        --open;
        job.layers[l].give_back(round);
      }
      if (!any) model.await_store_after(seen);
    }
    job.report.write(static_cast<int>(round));
    job.closed.store(round, std::memory_order_release);
  }
}

template <template <class> class Atomic>
Explorer::Bodies make_pushers() {
  auto job = std::make_shared<LayeredJob<Atomic>>();
  return {[job] { push_only(*job, 0); }, [job] { push_only(*job, 1); }, [job] { drive(*job); }};
}

template <template <class> class Atomic, std::uint32_t Rounds, std::size_t Layers>
Explorer::Bodies make_rounds() {
  auto job = std::make_shared<LayeredJob<Atomic>>();
  job->rounds = Rounds;
  job->count = Layers;
  return {[job] { application(*job); }, [job] { drive(*job); }};
}

void expect_every_order_clean(const std::function<Explorer::Bodies()>& make) {
  Explorer explorer;
  const auto schedules = explorer.explore(make);
  EXPECT_EQ(explorer.error(), "");
  std::printf("%llu schedules\n", static_cast<unsigned long long>(schedules));
  EXPECT_GT(schedules, 100U) << "too few to be all of them";
}

TEST(LayerCounts, TwoThreadsHandLayersOverWithoutARaceInEveryOrder) {
  expect_every_order_clean(make_pushers<interleavings::Atomic>);
}

TEST(LayerCounts, LayersComeBackWithoutARaceInEveryOrder) {
  expect_every_order_clean(make_rounds<interleavings::Atomic, 1, 2>);
  expect_every_order_clean(make_rounds<interleavings::Atomic, 2, 1>);
}

/// Handing over without release: what the detector must find.
template <class T>
class Unreleased : public interleavings::Atomic<T> {
 public:
  using interleavings::Atomic<T>::Atomic;
  T fetch_add(T value, std::memory_order order) {
    if (order == std::memory_order_release) order = std::memory_order_relaxed;
    return interleavings::Atomic<T>::fetch_add(value, order);
  }
};

TEST(LayerCounts, ALayerHandedOverWithoutReleaseIsFound) {
  Explorer explorer;
  explorer.explore(make_pushers<Unreleased>);
  EXPECT_NE(explorer.error().find("without order"), std::string::npos) << explorer.error();
}

/// Giving back without release.
template <class T>
class Ungiven : public interleavings::Atomic<T> {
 public:
  using interleavings::Atomic<T>::Atomic;
  void store(T value, std::memory_order) {
    interleavings::Atomic<T>::store(value, std::memory_order_relaxed);
  }
};

TEST(LayerCounts, ALayerGivenBackWithoutReleaseIsFound) {
  Explorer explorer;
  explorer.explore(make_rounds<Ungiven, 2, 1>);
  EXPECT_NE(explorer.error().find("without order"), std::string::npos) << explorer.error();
}

/// Counting as one thread may: read, then write.
template <class T>
class Torn : public interleavings::Atomic<T> {
 public:
  using interleavings::Atomic<T>::Atomic;
  T fetch_add(T value, std::memory_order order) {
    if (order != std::memory_order_relaxed)
      return interleavings::Atomic<T>::fetch_add(value, order);
    const T before = this->load(std::memory_order_relaxed);
    this->store(before + value, std::memory_order_relaxed);
    return before;
  }
};

TEST(LayerCounts, TwoThreadsThatBothBeginTheRoundAreFound) {
  Explorer explorer;
  explorer.explore(make_pushers<Torn>);
  EXPECT_NE(explorer.error(), "");
}

TEST(LayerCounts, ALayerHandedOverTwiceIsNoticed) {
  LayerCounts<> counts;
  EXPECT_TRUE(counts.push());
  EXPECT_FALSE(counts.push());
}

TEST(RoundOpening, OneOfEveryRoundsLayersIsTheFirst) {
  RoundOpening<> opening;
  for (int round = 0; round < 3; ++round) {
    EXPECT_TRUE(opening.first_of(3));
    EXPECT_FALSE(opening.first_of(3));
    EXPECT_FALSE(opening.first_of(3));
  }
}

}  // namespace layer_counts_test
}  // namespace selmcast
