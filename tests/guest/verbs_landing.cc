// mix=cumulative over a device: frames that it writes to their places, whole workers with their
// threads.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <thread>

#include "selmcast/worker.h"
#include "tests/guest/devices.h"
#include "transport/rendezvous/rendezvous.h"

namespace selmcast {
namespace {

constexpr std::uint32_t kRanks = 4, kSteps = 1, kMtu = 1076;
constexpr std::size_t kMany = 100'003;  // 406 frames of 984 bytes, and a short one.

/// What rank r does to element i in step s: whole multiples of 1/8, so that sums are exact.
float step_of(Rank r, std::uint32_t s, std::size_t i) {
  return static_cast<float>(static_cast<int>((r + 2) * (s + 1) + i % 13) % 19 - 9) / 8.0F;
}

struct Outcome {
  std::vector<float> parameters;
  std::vector<RoundReport> rounds;
  std::string error;
};

void work(const WorkerConfig& config, std::size_t count, Outcome& out) {
  const auto run = [&]() -> Result<void> {
    auto worker = Worker::join(config);
    if (!worker) return std::move(worker).error();
    out.parameters.assign(count, 2.0F);
    if (auto added = (*worker)->add_parameters(out.parameters); !added) return added;
    for (std::uint32_t s = 0; s <= kSteps; ++s) {
      if (s < kSteps) {
        for (std::size_t i = 0; i < count; ++i) out.parameters[i] += step_of(config.rank, s, i);
      }
      auto closed = s < kSteps ? (*worker)->step() : (*worker)->finish();
      if (!closed) return std::move(closed).error();
      out.rounds.insert(out.rounds.end(), closed->begin(), closed->end());
    }
    return (*worker)->leave();
  };
  if (auto done = run(); !done) out.error = done.error().message;
}

/// Four ranks, whose parameters must end as the start and the mean of all steps, exactly.
std::vector<Outcome> verified_job(const std::string& policy, std::size_t count, double loss) {
  std::string folder = testing::TempDir() + "selmcast-landing-XXXXXX";
  EXPECT_NE(::mkdtemp(folder.data()), nullptr);
  StoreAddress address;
  address.path = folder + "/store";
  auto store = StoreServer::start(address, kRanks);
  EXPECT_TRUE(store) << (store ? "" : store.error().message);
  const auto devices = guest::device_names();
  std::vector<Outcome> out(kRanks);
  std::vector<std::thread> threads;
  for (Rank rank = 0; rank < kRanks; ++rank) {
    WorkerConfig config;
    config.rendezvous = "file:" + address.path;
    config.host_store = false;
    config.rank = rank;
    config.world = kRanks;
    config.transport = "verbs";
    config.interface = devices[rank % devices.size()];
    config.policy = policy;
    config.mtu = kMtu;
    config.loss = loss;
    config.links = LinkTable{std::vector<Kbps>(kRanks, 200'000),  //
                             std::vector<Kbps>(kRanks, 200'000)};
    threads.emplace_back(work, config, count, std::ref(out[rank]));
  }
  for (auto& thread : threads) thread.join();
  store = failed("stopped");
  std::filesystem::remove_all(folder);
  for (Rank rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(out[rank].error, "") << "rank " << rank;
    std::size_t wrong = out[rank].parameters.size() == count ? 0 : count;
    for (std::size_t i = 0; i < count && wrong == 0; ++i) {
      double done = 0.0;
      for (Rank r = 0; r < kRanks; ++r) {
        for (std::uint32_t s = 0; s < kSteps; ++s) done += static_cast<double>(step_of(r, s, i));
      }
      wrong += static_cast<double>(out[rank].parameters[i]) == 2.0 + done / kRanks ? 0 : 1;
    }
    EXPECT_EQ(wrong, 0U) << "rank " << rank;
    for (const auto& round : out[rank].rounds) EXPECT_TRUE(round.verified);
  }
  return out;
}

class VerbsLanding : public testing::TestWithParam<const char*> {};

TEST_P(VerbsLanding, WithoutLossFramesComeInPlaceAndAreNotCopied) {
  std::uint64_t received = 0, landed = 0, repaired = 0, misplaced = 0;
  for (const auto& rank : verified_job(GetParam(), kMany, 0.0)) {
    for (const auto& round : rank.rounds) {
      // Of a byte that is in place nothing is copied, of any other one it is once; a guess that was
      // wrong makes it more.
      if (round.misplaced_frames == 0) {
        EXPECT_EQ(round.landed_bytes + round.copied_bytes, round.rx_payload_bytes);
      }
      received += round.rx_payload_bytes;
      landed += round.landed_bytes;
      repaired += round.repaired_frames + round.read_frames;
      misplaced += round.misplaced_frames;
    }
  }
  ASSERT_GT(received, 0U);
  std::printf("in place: %.5f of %llu bytes, %llu frames repaired, %llu misplaced\n",
              static_cast<double>(landed) / static_cast<double>(received),
              static_cast<unsigned long long>(received), static_cast<unsigned long long>(repaired),
              static_cast<unsigned long long>(misplaced));
  // The emulated device itself loses frames when the machine is busy.
  if (repaired == 0) {
    EXPECT_GE(static_cast<double>(landed), 0.99 * static_cast<double>(received));
    EXPECT_EQ(misplaced, 0U);
  } else {
    EXPECT_GT(landed, 0U);
  }
}

INSTANTIATE_TEST_SUITE_P(Groups, VerbsLanding,
                         testing::Values("select=all mix=cumulative",
                                         "select=selmcast:2 mix=cumulative"),
                         [](const auto& of) {
                           return std::string(of.param).find("all") != std::string::npos ? "Senders"
                                                                                         : "Rows";
                         });

TEST(VerbsLandingLoss, TheResultIsTheSame) {
  std::uint64_t repaired = 0;
  for (const auto& rank : verified_job("select=selmcast:2 mix=cumulative", 30'001, 0.02)) {
    for (const auto& round : rank.rounds) repaired += round.repaired_frames + round.read_frames;
  }
  EXPECT_GT(repaired, 0U);
}

}  // namespace
}  // namespace selmcast
