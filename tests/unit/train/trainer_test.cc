#include "train/trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <thread>

#include "train/report.h"
#include "train/train_result.h"
#include "training_support.h"

namespace selmcast {
namespace {

using testing::digits_task;
using ::testing::HasSubstr;
using testing::LocalJob;
using ::testing::Not;
using testing::rotating;

TrainOptions small_options() {
  TrainOptions options;
  options.workers = 4;
  options.epochs = 2;
  options.batch = 32;
  return options;
}

/// Trains on threads, one a worker, and returns what they published.
std::map<std::string, Bytes> train(const TrainTask& task, const Schedule& schedule,
                                   const TrainerOptions& options) {
  LocalJob job(task.options().workers, schedule);
  std::vector<std::thread> threads;
  for (Rank rank = 0; rank < task.options().workers; ++rank) {
    threads.emplace_back([&, rank] {
      const auto worker = job.worker(rank);
      const auto done = train_rank(*worker, task, options);
      EXPECT_TRUE(done);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return job.published;
}

TEST(TrainRank, DoesWhatTheReferenceDoes) {
  const TrainTask task = digits_task(small_options());
  const auto published = train(task, rotating(4, 2), {});
  const auto models = train_with_gossip(task, rotating(4, 2));
  for (Rank rank = 0; rank < 4; ++rank) {
    const auto snapshot = decode_snapshot(published.at(std::to_string(rank) + "/step/22"));
    ASSERT_TRUE(snapshot);
    EXPECT_EQ(snapshot->parameters, models[rank]);
    EXPECT_EQ(snapshot->steps, 2 * task.rounds_per_epoch());
    const auto first = decode_snapshot(published.at(std::to_string(rank) + "/step/0"));
    ASSERT_TRUE(first);
    EXPECT_EQ(first->parameters, task.initial_parameters());
  }
}

TEST(TrainRank, SharesGradientsWhenAsked) {
  const TrainTask task = digits_task(small_options());
  const auto published = train(task, everyone(4), {Exchange::gradients, 1.0});
  const auto expected = train_with_shared_gradients(task);
  const auto first = decode_snapshot(published.at("0/step/22"));
  ASSERT_TRUE(first);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    ASSERT_NEAR(first->parameters[i], expected[i], 1e-5);
  }
  for (Rank rank = 1; rank < 4; ++rank) {
    const auto other = decode_snapshot(published.at(std::to_string(rank) + "/step/22"));
    ASSERT_TRUE(other);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      ASSERT_NEAR(other->parameters[i], first->parameters[i], 1e-5);
    }
  }
}

TEST(TrainRank, SlowdownChangesTimeOnly) {
  const TrainTask task = digits_task(small_options());
  const auto quick = train(task, everyone(4), {Exchange::parameters, 1.0});
  const auto slow = train(task, everyone(4), {Exchange::parameters, 3.0});
  EXPECT_EQ(decode_snapshot(quick.at("2/step/22")).value().parameters,
            decode_snapshot(slow.at("2/step/22")).value().parameters);
}

// Three times as many steps as the task has: rate and points follow the share that is done, epochs
// the rank's own steps.
TEST(TrainRank, WithMoreStepsStretchesTheSchedule) {
  TrainOptions options = small_options();
  options.workers = 1;
  options.decay = 1.0;
  options.curve_steps = 40;
  const TrainTask task = digits_task(options);
  ASSERT_EQ(task.steps(), 88U);
  LocalJob job(1, nobody(1));
  TrainerOptions trainer;
  trainer.steps = 3 * 88;
  ASSERT_TRUE(train_rank(*job.worker(0), task, trainer));

  Learner learner(task, 0);
  std::vector<float> model = task.initial_parameters(), gradient(model.size());
  for (std::uint32_t step = 0; step < 3 * 88; ++step) {
    if (step % 44 == 0) learner.start_epoch();
    learner.gradient(model, gradient);
    const double rate = 0.3 * (88 - step / 3) / 88.0;
    descend(model, gradient, static_cast<float>(rate));
    const std::uint32_t done = step + 1;
    if (done != 120 && done != 240 && done != 264) continue;
    const auto snapshot = decode_snapshot(job.published.at("0/step/" + std::to_string(done / 3)));
    ASSERT_TRUE(snapshot);
    EXPECT_EQ(snapshot->steps, done / 3);
    EXPECT_EQ(snapshot->rounds, done);
    EXPECT_EQ(snapshot->parameters, model) << done;
  }
  EXPECT_EQ(decode_report(job.published.at("0/train")).value().steps, 264U);
}

TEST(Assemble, JudgesEveryEpochAndAddsUpTheAccounts) {
  const TrainTask task = digits_task(small_options());
  const auto published = train(task, rotating(4, 2), {});
  const auto result = assemble(task, published, {});
  ASSERT_TRUE(result) << result.error().message;
  const std::uint32_t rounds = 2 * task.rounds_per_epoch();
  EXPECT_EQ(result->rounds, rounds);
  EXPECT_EQ(result->transport, "threads");
  EXPECT_EQ(result->policy, "select=test");
  EXPECT_EQ(result->bytes_on_wire, 4U * rounds * 100);
  EXPECT_DOUBLE_EQ(result->receivers_per_round, 8.0);
  EXPECT_DOUBLE_EQ(result->round_ms.median, 4.0);  // the slowest rank's
  EXPECT_EQ(result->rate_kbps, 1000U);
  EXPECT_TRUE(result->verified);
  EXPECT_EQ(result->notices, std::vector<std::string>{"one notice"});
  ASSERT_EQ(result->workers.size(), 3U);
  ASSERT_EQ(result->baseline.size(), 3U);
  ASSERT_EQ(result->local_only.size(), 3U);

  const auto models = train_with_gossip(task, rotating(4, 2));
  Judge judge(task);
  EXPECT_EQ(result->final_workers().accuracy, judge.score(mean_model(models)).accuracy);
  double worst = 1.0;
  for (const auto& model : models) worst = std::min(worst, judge.score(model).accuracy);
  EXPECT_EQ(result->final_workers().worker_min, worst);
  EXPECT_EQ(result->final_baseline().accuracy, judge.score(train_alone(task)).accuracy);

  const auto json = to_json(*result);
  for (const char* field :
       {"schema", "workers", "transport", "policy", "params_bytes", "verified", "failed_ranks",
        "accuracy", "worker_accuracy", "baseline_accuracy", "local_only_accuracy", "seconds",
        "rounds", "bytes_on_wire", "curves"}) {
    EXPECT_TRUE(json.contains(field)) << field;
  }
  EXPECT_EQ(json["schema"], 1);
  EXPECT_EQ(json["params_bytes"], 9640);
  EXPECT_EQ(json["worker_accuracy"]["min"], worst);
  EXPECT_EQ(json["curves"]["workers"].size(), 3U);
  const std::string table = to_table(*result);
  EXPECT_THAT(table, HasSubstr("single process"));
  EXPECT_THAT(table, HasSubstr("receivers per round"));
}

TEST(Assemble, LeavesLostRanksOutAndNamesThem) {
  const TrainTask task = digits_task(small_options());
  auto published = train(task, rotating(4, 2), {});
  std::erase_if(published, [](const auto& item) {
    return item.first == "3/train" || item.first == "3/step/22";
  });
  const auto missing = assemble(task, published, {});
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().kind, ErrorKind::failed);
  EXPECT_THAT(missing.error().message, HasSubstr("rank 3"));
  const auto result = assemble(task, published, std::vector<Rank>{3});
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(result->failed_ranks, std::vector<Rank>{3});
  EXPECT_THAT(to_table(*result), HasSubstr("ranks lost           3"));
  const auto none = assemble(task, published, std::vector<Rank>{0, 1, 2, 3});
  ASSERT_FALSE(none);
  EXPECT_THAT(none.error().message, HasSubstr("no worker"));
}

TEST(Assemble, RefusesMalformedReports) {
  const TrainTask task = digits_task(small_options());
  auto published = train(task, rotating(4, 2), {});
  auto cut = published;
  cut.at("1/step/11").pop_back();
  EXPECT_THAT(assemble(task, cut, {}).error().message, HasSubstr("rank 1"));
  cut = published;
  cut.at("2/train").resize(7);
  EXPECT_THAT(assemble(task, cut, {}).error().message, HasSubstr("rank 2"));
  cut = published;
  cut.at("0/train") = published.at("1/train");
  EXPECT_THAT(assemble(task, cut, {}).error().message, HasSubstr("rank 0"));
}

TEST(Assemble, LeavesTheReferencesOutWhenAsked) {
  const TrainTask task = digits_task(small_options());
  const auto published = train(task, rotating(4, 2), {});
  const auto result = assemble(task, published, {}, References::no);
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_FALSE(result->has_references());
  const auto json = to_json(*result);
  EXPECT_TRUE(json["baseline_accuracy"].is_null());
  EXPECT_TRUE(json["local_only_accuracy"].is_null());
  EXPECT_THAT(to_table(*result), Not(HasSubstr("single process")));
  EXPECT_EQ(json["rank_compute_ms"].size(), 4U);
  EXPECT_GT(json["rank_compute_ms"][3], 0.0);
}

// Two ranks, one with a model of all zeros first and the trained one from 1 s on, the other from
// 3 s on: at 2 s the mean is of the first one's newest and the second one's oldest.
TEST(CurveByTime, TakesTheNewestModelOfEveryRank) {
  const TrainTask task = digits_task(small_options());
  const std::vector<float> zero(task.shape().parameters(), 0.0F);
  const std::vector<float> trained = train_alone(task);
  const std::vector<std::vector<Snapshot>> ranks{
      {{0, 0, 0, 0.0, zero}, {1, 11, 11, 1.0, trained}, {2, 22, 22, 2.5, trained}},
      {{0, 0, 0, 0.0, zero}, {1, 11, 11, 3.0, trained}, {2, 22, 22, 4.0, trained}}};
  Judge judge(task);
  const double poor = judge.score(zero).accuracy, good = judge.score(trained).accuracy;
  const std::vector<std::vector<double>> own(2, {poor, good, good});
  const auto curve = judge_by_time(judge, ranks, own, 5);
  ASSERT_EQ(curve.size(), 5U);
  EXPECT_GT(good, poor + 0.3);
  const std::array<std::array<double, 4>, 5> expected{{{0.0, 0, poor, poor},
                                                       {1.0, 6, good, poor},
                                                       {2.0, 6, good, poor},
                                                       {3.0, 17, good, good},
                                                       {4.0, 22, good, good}}};
  for (std::size_t p = 0; p < 5; ++p) {
    const auto& [seconds, steps, first, second] = expected.at(p);
    EXPECT_EQ(curve[p].seconds, seconds);
    EXPECT_EQ(curve[p].steps, static_cast<std::uint32_t>(steps));
    EXPECT_EQ(curve[p].worker_min, std::min(first, second));
    EXPECT_DOUBLE_EQ(curve[p].worker_mean, (first + second) / 2);
  }
  std::vector<float> half(zero.size());
  for (std::size_t x = 0; x < half.size(); ++x) half[x] = trained[x] / 2;
  EXPECT_EQ(curve[2].accuracy, judge.score(half).accuracy);
  EXPECT_EQ(curve[2].loss, judge.score(half).loss);
  EXPECT_EQ(curve[3].loss, judge.score(trained).loss);
}

TEST(LiveCurve, GivesAPointWhenEveryRankReported) {
  const TrainTask task = digits_task(small_options());
  LiveCurve curve(task);
  const auto snapshot = [&](std::uint32_t epoch) {
    return encode(Snapshot{epoch, epoch * 11, epoch * 11, 0.5, task.initial_parameters()});
  };
  for (const char* rank : {"0", "1", "2"}) {
    EXPECT_FALSE(curve.take(std::string(rank) + "/progress", snapshot(1)));
  }
  EXPECT_FALSE(curve.take("3/train", Bytes(5)));
  EXPECT_FALSE(curve.take("3/step/11", snapshot(1)));
  EXPECT_FALSE(curve.take("3/progress", Bytes(5)));
  const auto full = curve.take("3/progress", snapshot(1));
  ASSERT_TRUE(full);
  EXPECT_EQ(full->epoch, 1U);
  EXPECT_EQ(full->steps, 11U);
  EXPECT_FALSE(curve.take("0/progress", snapshot(2)));
  EXPECT_FALSE(curve.take("1/progress", snapshot(2)));
  const auto without_others = curve.take("0/progress", snapshot(3));
  ASSERT_TRUE(without_others) << "ranks 2 and 3 are late";
  EXPECT_EQ(without_others->epoch, 2U);
}

TEST(Report, SurvivesTheWire) {
  TrainingReport report;
  report.rank = 3;
  report.transport = "shm";
  report.policy = "select=all";
  report.seconds = 1.5;
  report.steps = 9;
  report.compute_seconds = 0.25;
  report.verified = false;
  report.tx_bytes = 1ULL << 40U;
  report.round_ms = {1.25, 2.5};
  report.receivers = {1, 2};
  report.rate_kbps = {5, 1ULL << 50U};
  report.failed_ranks = {7};
  report.notices = {"a", ""};
  const Bytes bytes = encode(report);
  const auto back = decode_report(bytes);
  ASSERT_TRUE(back);
  EXPECT_EQ(encode(*back), bytes);
  EXPECT_EQ(back->rate_kbps[1], 1ULL << 50U);
  EXPECT_EQ(back->steps, 9U);
  EXPECT_EQ(back->compute_seconds, 0.25);
  EXPECT_FALSE(back->verified);
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(decode_report(std::span(bytes).first(size))) << size;
  }
  EXPECT_FALSE(decode_snapshot(bytes));
}

TEST(Report, ALyingCountReservesNothing) {
  WireWriter out;
  out.put(std::uint32_t{0x53500001U}).put(std::uint32_t{1}).put(std::uint32_t{1});
  out.put(std::uint64_t{0}).put(std::uint32_t{0xFFFFFFFFU});
  EXPECT_FALSE(decode_snapshot(std::move(out).take()));
}

TEST(Points, AreAfterEpochsOrAboutAHundredOfThem) {
  for (const std::uint32_t epochs : {1U, 7U, 100U, 101U, 250U, 10'000U}) {
    TrainOptions options = small_options();
    options.epochs = epochs;
    const TrainTask task = digits_task(options);
    std::uint32_t count = 0;
    for (std::uint32_t steps = 0; steps <= task.steps(); ++steps) {
      if (!task.is_point(steps)) continue;
      ++count;
      EXPECT_EQ(steps % task.rounds_per_epoch(), 0U);
    }
    EXPECT_LE(count, 102U) << epochs;
    EXPECT_TRUE(task.is_point(0));
    EXPECT_TRUE(task.is_point(task.steps()));
    if (epochs <= 100) {
      EXPECT_EQ(count, epochs + 1);
    }
  }
}

TEST(Points, AreWhereTheOptionsSay) {
  TrainOptions options = small_options();
  options.curve_steps = 7;
  const TrainTask task = digits_task(options);
  ASSERT_EQ(task.steps(), 22U);
  std::vector<std::uint32_t> points;
  for (std::uint32_t steps = 0; steps <= 22; ++steps) {
    if (task.is_point(steps)) points.push_back(steps);
  }
  EXPECT_EQ(points, (std::vector<std::uint32_t>{0, 7, 14, 21, 22}));
}

TEST(TrainTask, RefusesWhatCannotBeTrained) {
  const auto refused = [](auto change) {
    TrainOptions options;
    change(options);
    const auto task = TrainTask::make(options, *load_digits(*find_digits()));
    if (task) return std::string("accepted");
    EXPECT_EQ(task.error().kind, ErrorKind::bad_input);
    return task.error().message;
  };
  EXPECT_THAT(refused([](auto& o) { o.workers = 0; }), HasSubstr("--workers 0: 1 to 718"));
  EXPECT_THAT(refused([](auto& o) { o.workers = 719; }), HasSubstr("--workers 719"));
  EXPECT_THAT(refused([](auto& o) { o.batch = 0; }), HasSubstr("--batch 0"));
  EXPECT_THAT(refused([](auto& o) { o.batch = 180; }), HasSubstr("--batch 180: at most 179"));
  EXPECT_THAT(refused([](auto& o) { o.epochs = 0; }), HasSubstr("--epochs 0"));
  EXPECT_THAT(refused([](auto& o) { o.epochs = 4'000'000'000U; }), HasSubstr("2^32"));
  EXPECT_THAT(refused([](auto& o) { o.learning_rate = -1; }), HasSubstr("--lr"));
  EXPECT_THAT(refused([](auto& o) { o.learning_rate = NAN; }), HasSubstr("--lr"));
  EXPECT_THAT(refused([](auto& o) { o.decay = 1.1; }), HasSubstr("--lr-decay"));
  EXPECT_THAT(refused([](auto& o) { o.decay = NAN; }), HasSubstr("--lr-decay"));
  EXPECT_THAT(refused([](auto& o) { o.hidden = 0; }), HasSubstr("--hidden 0: 1 to 65536"));
  EXPECT_THAT(refused([](auto& o) { o.hidden = 65'537; }), HasSubstr("--hidden 65537"));
  EXPECT_THAT(refused([](auto& o) {
                o.epochs = 1000;
                o.curve_steps = 21;
              }),
              HasSubstr("--curve-steps 21: at least 23 for 22000 steps"));
}

TEST(TrainTask, LearningRateFallsInAStraightLineAtTheEnd) {
  TrainOptions options = small_options();
  options.learning_rate = 0.5;
  options.epochs = 2;
  options.decay = 0.0;
  const auto constant = digits_task(options);
  const std::uint32_t rounds = 2 * constant.rounds_per_epoch();
  for (std::uint32_t r = 0; r < rounds; ++r) EXPECT_EQ(constant.learning_rate(r), 0.5F);
  options.decay = 1.0;
  const auto falling = digits_task(options);
  for (std::uint32_t r = 0; r < rounds; ++r) {
    EXPECT_FLOAT_EQ(falling.learning_rate(r),
                    0.5F * static_cast<float>(rounds - r) / static_cast<float>(rounds));
  }
  options.decay = 0.5;
  const auto half = digits_task(options);
  EXPECT_EQ(half.learning_rate(rounds / 2), 0.5F);
  EXPECT_LT(half.learning_rate(rounds / 2 + 1), 0.5F);
  EXPECT_FLOAT_EQ(half.learning_rate(rounds - 1), 1.0F / static_cast<float>(rounds));
}

}  // namespace
}  // namespace selmcast
