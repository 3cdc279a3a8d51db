// Whole workers with their threads, several in one process, over real transports.
#include "selmcast/worker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "selmcast/memory.h"
#include "store/rendezvous.h"
#include "transport/backends/open.h"

namespace selmcast {
namespace {

constexpr std::size_t kCount = 30'011;

class Workers : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    for (const auto& state : backend_states()) {
      if (state.name == GetParam() && !state.usable) GTEST_SKIP() << state.reason;
    }
    std::string folder = testing::TempDir() + "selmcast-worker-XXXXXX";
    ASSERT_NE(::mkdtemp(folder.data()), nullptr);
    folder_ = folder;
  }
  void TearDown() override {
    store_.reset();
    if (!folder_.empty()) std::filesystem::remove_all(folder_);
  }

  void serve(std::uint32_t world) {
    store_.reset();
    StoreAddress address;
    address.path = folder_ + "/store";
    auto store = StoreServer::start(address, world);
    ASSERT_TRUE(store) << store.error().message;
    store_ = std::move(store).value();
  }

  WorkerConfig config(Rank rank, std::uint32_t world, const std::string& policy) const {
    WorkerConfig out;
    out.rendezvous = "file:" + folder_ + "/store";
    out.host_store = store_ == nullptr;
    out.rank = rank;
    out.world = world;
    out.transport = GetParam();
    out.policy = policy;
    out.links = LinkTable{std::vector<Kbps>(world, 800'000), std::vector<Kbps>(world, 800'000)};
    return out;
  }

  /// Runs `body(worker, parameters)` for every rank in a thread of its own. Rank r starts with r.
  template <class Body>
  std::vector<std::vector<float>> run(std::uint32_t world, const std::string& policy, Body body) {
    return run_in_layers(world, policy, {}, body);
  }
  /// The same with layers of these sizes, unless there are none.
  template <class Body>
  std::vector<std::vector<float>> run_in_layers(std::uint32_t world, const std::string& policy,
                                                const std::vector<std::size_t>& layers, Body body) {
    serve(world);
    std::vector<std::vector<float>> parameters(world);
    std::vector<std::thread> threads;
    for (Rank rank = 0; rank < world; ++rank) {
      parameters[rank].assign(kCount, static_cast<float>(rank));
      threads.emplace_back([&, rank] {
        auto worker = Worker::join(config(rank, world, policy));
        ASSERT_TRUE(worker) << worker.error().message;
        auto added = layers.empty() ? (*worker)->add_parameters(parameters[rank])
                                    : (*worker)->add_layers(parameters[rank], layers);
        ASSERT_TRUE(added) << added.error().message;
        body(**worker, parameters[rank]);
      });
    }
    for (auto& thread : threads) thread.join();
    return parameters;
  }

  std::string folder_;
  std::unique_ptr<StoreServer> store_;
};

TEST_P(Workers, FullBroadcastGivesEveryoneTheMean) {
  const auto end = run(4, "select=all mix=average", [](Worker& worker, std::vector<float>&) {
    auto report = worker.synchronize();
    ASSERT_TRUE(report) << report.error().message;
    EXPECT_EQ(report->receivers.size(), 3U);
    EXPECT_TRUE(report->verified);
    EXPECT_EQ(report->rx_payload_bytes, 3 * kCount * sizeof(float));
    EXPECT_TRUE(worker.leave());
  });
  for (const auto& values : end) {
    for (const float v : values) ASSERT_FLOAT_EQ(v, 1.5F);
  }
}

// Over shared memory the ranks with such memory are read where it is, the others copied.
TEST_P(Workers, ParametersInSharedMemoryAreMixedLikeOthers) {
  constexpr std::uint32_t kShared = 3, kRounds = 40;
  constexpr std::size_t kElements = 300'011;
  for (const char* policy : {"select=all mix=sgd", "select=all mix=sgd route=ps:3"}) {
    serve(kShared);
    std::vector<std::thread> threads;
    for (Rank rank = 0; rank < kShared; ++rank) {
      threads.emplace_back([&, rank] {
        auto memory = allocate(kElements * sizeof(float));
        ASSERT_TRUE(memory) << memory.error().message;
        std::vector<float> own(kElements);
        const auto values = rank == 2 ? std::span(own) : memory->floats(kElements);
        auto worker = Worker::join(config(rank, kShared, policy));
        ASSERT_TRUE(worker) << worker.error().message;
        ASSERT_TRUE((*worker)->add_parameters(values));
        for (std::uint32_t round = 0; round < kRounds; ++round) {
          // Small whole numbers, so that every order of adding gives the same.
          for (std::size_t i = 0; i < kElements; ++i) {
            values[i] = static_cast<float>(3 * ((i + round) % 1000) * (rank + 1));
          }
          const auto report = (*worker)->synchronize();
          ASSERT_TRUE(report) << report.error().message;
          ASSERT_TRUE(report->verified);
          for (std::size_t i = 0; i < kElements; ++i) {
            ASSERT_FLOAT_EQ(values[i], static_cast<float>(6 * ((i + round) % 1000))) << i;
          }
        }
        EXPECT_TRUE((*worker)->leave());
      });
    }
    for (auto& thread : threads) thread.join();
  }
}

TEST_P(Workers, ManyRoundsWithPartialSelectionStayInStep) {
  run(5, "select=selmcast:2", [](Worker& worker, std::vector<float>& parameters) {
    for (std::uint32_t round = 0; round < 30; ++round) {
      auto report = worker.synchronize();
      ASSERT_TRUE(report) << report.error().message;
      EXPECT_EQ(report->round, round);
      EXPECT_GE(report->receivers.size(), 1U);
      EXPECT_EQ(report->foreign_frames, 0U);
    }
    const double own = parameters[0];
    auto mean = worker.mean_of(std::span(&own, 1), "value");
    ASSERT_TRUE(mean) << mean.error().message;
    // Homogeneous links give equal in-degrees, so the mean is kept and everyone comes near it.
    EXPECT_NEAR((*mean)[0], 2.0, 1e-4);
    EXPECT_NEAR(own, 2.0, 1e-2);
    EXPECT_TRUE(worker.leave());
  });
}

TEST_P(Workers, GradientMeanIsThatOfAllRanks) {
  const auto end = run(3, "select=all mix=sgd", [](Worker& worker, std::vector<float>&) {
    ASSERT_TRUE(worker.synchronize());
    EXPECT_TRUE(worker.leave());
  });
  for (const auto& values : end) EXPECT_FLOAT_EQ(values[kCount - 1], 1.0F);
}

// Every layer changes hands twice a round, while frames of others arrive.
TEST_P(Workers, LayersAreHandedOverOneByOne) {
  const std::vector<std::size_t> layers{11, 20'000, 10'000};
  for (const char* policy : {"p3", "p3 order=fifo"}) {
    run_in_layers(3, policy, layers, [&](Worker& worker, std::vector<float>& gradients) {
      const auto value = [](Rank rank, int step, std::size_t layer) {
        return static_cast<float>(rank + 1) * static_cast<float>(step + 1) +
               static_cast<float>(layer);
      };
      for (int step = 0; step < 20; ++step) {
        std::size_t at = kCount;
        for (std::size_t l = layers.size(); l-- > 0;) {
          at -= layers[l];
          std::fill_n(gradients.begin() + static_cast<std::ptrdiff_t>(at), layers[l],
                      value(worker.rank(), step, l));
          ASSERT_TRUE(worker.push_layer(l));
        }
        for (std::size_t l = 0; l < layers.size(); ++l) {
          ASSERT_TRUE(worker.wait_layer(l));
          // Sums of small integers and their thirds.
          const float mean = (value(0, step, l) + value(1, step, l) + value(2, step, l)) / 3.0F;
          for (std::size_t i = 0; i < layers[l]; i += 997) ASSERT_FLOAT_EQ(gradients[at + i], mean);
          at += layers[l];
        }
        const auto report = worker.wait();
        ASSERT_TRUE(report) << report.error().message;
        EXPECT_TRUE(report->verified);
        EXPECT_EQ(report->receivers.size(), 2U);
        EXPECT_EQ(report->rx_payload_bytes, 2 * kCount * sizeof(float));
      }
      EXPECT_TRUE(worker.leave());
    });
  }
}

// As an autograd engine's threads do. Every thread hands over and waits for layers of its own.
TEST_P(Workers, LayersAreHandedOverByFourThreadsAtTheSameTime) {
  constexpr std::size_t kThreads = 4, kLayers = 12;
  constexpr int kSteps = 40;
  std::vector<std::size_t> layers(kLayers, 2'000);
  layers.back() = kCount - (kLayers - 1) * 2'000;
  run_in_layers(2, "p3", layers, [&](Worker& worker, std::vector<float>& gradients) {
    const auto value = [](Rank rank, int step, std::size_t layer) {
      return static_cast<float>(2 * static_cast<int>(rank) * (step + 1) + static_cast<int>(layer));
    };
    std::barrier all(kThreads);
    std::atomic<bool> good{true};
    const auto thread = [&](std::size_t own) {
      for (int step = 0; step < kSteps; ++step) {
        for (std::size_t l = own; l < kLayers; l += kThreads) {
          std::fill_n(gradients.begin() + static_cast<std::ptrdiff_t>(2'000 * l), layers[l],
                      value(worker.rank(), step, l));
          if (!worker.push_layer(l)) good = false;
        }
        for (std::size_t l = own; l < kLayers; l += kThreads) {
          if (!worker.wait_layer(l)) good = false;
          const float mean = (value(0, step, l) + value(1, step, l)) / 2.0F;
          for (std::size_t i = 0; i < layers[l]; ++i) {
            if (gradients[2'000 * l + i] != mean) good = false;
          }
        }
        all.arrive_and_wait();
        if (own == 0) {
          const auto report = worker.wait();
          if (!report || report->round != static_cast<std::uint32_t>(step)) good = false;
        }
        all.arrive_and_wait();
      }
    };
    std::vector<std::thread> threads;
    for (std::size_t t = 0; t < kThreads; ++t) threads.emplace_back(thread, t);
    for (auto& one : threads) one.join();
    EXPECT_TRUE(good);
    EXPECT_TRUE(worker.leave());
  });
}

TEST_P(Workers, LayersThatDoNotFitAreRefused) {
  serve(1);
  auto worker = Worker::join(config(0, 1, "p3"));
  ASSERT_TRUE(worker);
  std::vector<float> gradients(10);
  const auto refused = [&](std::vector<std::size_t> sizes) {
    const auto added = (*worker)->add_layers(gradients, sizes);
    return added ? std::string() : added.error().message;
  };
  EXPECT_NE(refused({4, 5}).find("2 layers of 9 elements for 10"), std::string::npos);
  EXPECT_NE(refused({4, 7}).find("do not divide 10 elements"), std::string::npos);
  EXPECT_NE(refused({10, 0}).find("do not divide"), std::string::npos);
  EXPECT_NE(refused({}).find("0 layers"), std::string::npos);
}

TEST_P(Workers, ServersAndStagesKeepAllRanksTogether) {
  for (const char* policy : {"route=ps:2", "osp2 pace=stages:0.4", "osp2 route=ps:1"}) {
    const auto end = run(4, policy, [](Worker& worker, std::vector<float>& parameters) {
      // All start from the same parameters.
      std::fill(parameters.begin(), parameters.end(), 0.0F);
      for (int step = 0; step < 25; ++step) {
        for (auto& w : parameters) w += 0.25F * static_cast<float>(worker.rank());
        auto closed = worker.step();
        ASSERT_TRUE(closed) << closed.error().message;
        for (const auto& round : *closed) EXPECT_TRUE(round.verified);
      }
      auto rest = worker.finish();
      ASSERT_TRUE(rest) << rest.error().message;
      EXPECT_TRUE(worker.leave());
    });
    for (const auto& values : end) {
      for (std::size_t i = 0; i < kCount; i += 101) ASSERT_NEAR(values[i], 25 * 0.375F, 1e-4);
    }
  }
}

TEST_P(Workers, ARankThatLeavesWithoutGoodbyeIsNamedAndTheOthersGoOn) {
  run(4, "select=selmcast:2", [](Worker& worker, std::vector<float>&) {
    ASSERT_TRUE(worker.synchronize());
    if (worker.rank() == 2) return;  // Destroyed without leave(): as good as dead.
    for (int round = 0; round < 10; ++round) {
      auto report = worker.synchronize();
      ASSERT_TRUE(report) << report.error().message;
    }
    EXPECT_EQ(worker.failed_ranks(), std::vector<Rank>{2});
    EXPECT_EQ(worker.plan().members, 3U);
    EXPECT_TRUE(worker.leave());
  });
}

TEST_P(Workers, MeansOfOneTagAreOfTheirCall) {
  run(3, "select=all", [](Worker& worker, std::vector<float>&) {
    for (const double scale : {1.0, 10.0, -3.0}) {
      const double own[] = {scale * worker.rank(), scale};
      const auto mean = worker.mean_of(own, "loss");
      ASSERT_TRUE(mean) << mean.error().message;
      EXPECT_EQ(*mean, (std::vector<double>{scale, scale}));
    }
    const std::vector<double> uneven(worker.rank() == 1 ? 3 : 2);
    const auto refused = worker.mean_of(uneven, "loss");
    ASSERT_FALSE(refused);
    EXPECT_THAT(refused.error().message,
                testing::HasSubstr(worker.rank() == 1 ? "rank 0 gave 2" : "rank 1 gave 3"));
    EXPECT_TRUE(worker.leave());
  });
}

TEST_P(Workers, WithoutParametersThereAreNoRounds) {
  serve(1);
  auto joined = Worker::join(config(0, 1, "select=all"));
  ASSERT_TRUE(joined) << joined.error().message;
  Worker& worker = **joined;
  EXPECT_TRUE(worker.failed_ranks().empty());
  EXPECT_EQ(worker.plan().members, PlanReport().members);
  const double value = 1.0;
  for (const Error& error : {worker.wait().error(), worker.step().error(), worker.finish().error(),
                             worker.wait_layer(0).error(), worker.mean_of({&value, 1}, "x").error(),
                             worker.publish("x", {}).error(), worker.push().error(),
                             worker.push_layer(0).error(), worker.synchronize().error()}) {
    EXPECT_THAT(error.message, testing::HasSubstr("add_parameters() or add_layers() comes first"));
  }
  std::vector<float> parameters(kCount, 1.0F);
  ASSERT_TRUE(worker.add_parameters(parameters));
  EXPECT_THAT(worker.wait_layer(0).error().message, testing::HasSubstr("layer 0 does not exist"));
  EXPECT_TRUE(worker.leave());
}

TEST_P(Workers, LossOfTheStoreEndsTheJobWithAReason) {
  run(2, "select=all", [this](Worker& worker, std::vector<float>&) {
    ASSERT_TRUE(worker.synchronize());
    // The other rank may still be waiting in here when the store goes.
    const auto met = worker.mean_of({}, "both are here");
    if (worker.rank() == 0) {
      ASSERT_TRUE(met);
      store_.reset();
    }
    for (int round = 0; round < 1000; ++round) {
      auto report = worker.synchronize();
      if (report) continue;
      EXPECT_NE(report.error().message.find("store"), std::string::npos) << report.error().message;
      return;
    }
    FAIL() << "a thousand rounds after the store was gone";
  });
}

// The application's thread writes its parameters between steps, the driver's reads and mixes them
// at the boundaries, and frames arrive at any time.
TEST_P(Workers, FreeRoundsOfUnequalWorkersEndWithOneMean) {
  for (const char* pace : {"pace=async", "pace=ssp:2"}) {
    const auto end = run(4, pace, [](Worker& worker, std::vector<float>& parameters) {
      for (int step = 0; step < 40; ++step) {
        for (auto& w : parameters) w += 0.25F;
        if (worker.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(2));
        auto closed = worker.step();
        ASSERT_TRUE(closed) << closed.error().message;
        for (const auto& round : *closed) {
          EXPECT_TRUE(round.verified);
          EXPECT_EQ(round.foreign_frames, 0U);
        }
      }
      auto rest = worker.finish();
      ASSERT_TRUE(rest) << rest.error().message;
      ASSERT_FALSE(rest->empty());
      EXPECT_EQ(rest->back().receivers.size(), 3U);
      EXPECT_TRUE(worker.leave());
    });
    for (Rank rank = 0; rank < 4; ++rank) {
      for (std::size_t i = 0; i < kCount; ++i) {
        // Within what ranks could start and step to, and the same on all of them.
        ASSERT_GE(end[rank][i], 0.0F);
        ASSERT_LE(end[rank][i], 3.0F + 40 * 0.25F);
        ASSERT_NEAR(end[rank][i], end[0][i], 1e-4F) << pace << " rank " << rank;
      }
    }
    store_.reset();
  }
}

TEST_P(Workers, FreeRoundsGoOnWithoutARankThatLeaves) {
  run(4, "select=selmcast:2 pace=ssp:1", [](Worker& worker, std::vector<float>& parameters) {
    for (int step = 0; step < 30; ++step) {
      parameters[0] += 1.0F;
      if (worker.rank() == 2 && step == 10) return;  // Without leave(): as good as dead.
      auto closed = worker.step();
      ASSERT_TRUE(closed) << closed.error().message;
    }
    auto rest = worker.finish();
    ASSERT_TRUE(rest) << rest.error().message;
    EXPECT_EQ(worker.failed_ranks(), std::vector<Rank>{2});
    EXPECT_EQ(worker.plan().members, 3U);
    EXPECT_TRUE(worker.leave());
  });
}

TEST_P(Workers, FreeRoundsAreNeverDeterministic) {
  auto refused = config(0, 2, "pace=async");
  refused.deterministic = true;
  const auto worker = Worker::join(refused);
  ASSERT_FALSE(worker);
  EXPECT_EQ(worker.error().kind, ErrorKind::bad_input);
  EXPECT_NE(worker.error().message.find("--deterministic"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Transports, Workers, testing::Values("shm", "uring"),
                         [](const auto& param) { return std::string(param.param); });

}  // namespace
}  // namespace selmcast
