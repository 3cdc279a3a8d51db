#include "train/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <limits>

#include "train/report.h"
#include "train/trainer.h"
#include "training_support.h"

namespace selmcast {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(TraceFile, IsWrittenAndReadBack) {
  std::vector<RankTrace> traces(2);
  traces[0] = {{0.5, 2.25, 0, {}}, {3.0, 2.0, {}, {}}, {5.25, 1e-6, 1, 0}};
  traces[1] = {{0.0, 60'000.0, {}, 4'294'967'294U}};
  const std::string csv = trace_csv(traces);
  EXPECT_EQ(csv,
            "rank,step,compute_ms,start_ms,departed,closed\n"
            "0,0,2.250000,0.500000,0,\n"
            "0,1,2.000000,3.000000,,\n"
            "0,2,0.000001,5.250000,1,0\n"
            "1,0,60000.000000,0.000000,,4294967294\n");
  const auto back = parse_trace(csv, "t.csv", 2);
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(trace_csv(*back), csv);
}

TEST(TraceFile, MayHoldComputeTimesOnlyWithRanksMixed) {
  const auto traces =
      parse_trace("rank,step,compute_ms\r\n1,0,4\r\n0,0,1.5\r\n1,1,2e1", "t.csv", 2);
  ASSERT_TRUE(traces) << traces.error().message;
  ASSERT_EQ(traces->at(0).size(), 1U);
  ASSERT_EQ(traces->at(1).size(), 2U);
  EXPECT_EQ(traces->at(0)[0].compute_ms, 1.5);
  EXPECT_EQ(traces->at(1)[1].compute_ms, 20.0);
}

TEST(TraceFile, RefusesWhatItCannotMean) {
  const auto complaint = [](const std::string& lines, const char* header) {
    const auto traces = parse_trace(std::string(header) + "\n" + lines, "t.csv", 2);
    if (traces) return std::string("accepted");
    EXPECT_EQ(traces.error().kind, ErrorKind::bad_input);
    EXPECT_EQ(traces.error().message.find('\n'), std::string::npos);
    EXPECT_THAT(traces.error().message, HasSubstr("t.csv: "));
    return traces.error().message;
  };
  const auto brief = [&](const std::string& lines) {
    return complaint(lines, "rank,step,compute_ms");
  };
  EXPECT_THAT(brief("0,0,1\n2,0,1\n"), HasSubstr("line 3: rank \"2\" is not an integer 0..1"));
  EXPECT_THAT(brief("-1,0,1\n"), HasSubstr("line 2: rank \"-1\""));
  EXPECT_THAT(brief("0,1,1\n"), HasSubstr("line 2: step \"1\" is not 0, the next of rank 0"));
  EXPECT_THAT(brief("0,0,1\n0,0,1\n"), HasSubstr("line 3: step \"0\" is not 1"));
  EXPECT_THAT(brief("0,0,1,\n"), HasSubstr("line 2: 4 columns; 3 are needed"));
  EXPECT_THAT(brief("0,0\n"), HasSubstr("2 columns"));
  EXPECT_THAT(brief("\n"), HasSubstr("1 columns"));
  for (const char* time : {"", "x", "-1", "nan", "inf", "1e999", "60000.1", " 1", "1 ", "0x10"}) {
    EXPECT_THAT(brief("0,0," + std::string(time) + "\n"),
                AllOf(HasSubstr("line 2: compute_ms"), HasSubstr("a time in ms, 0..60000")))
        << time;
  }
  EXPECT_THAT(brief("0,0,1\n"), HasSubstr("no step of rank 1"));
  EXPECT_THAT(brief(""), HasSubstr("no step of rank 0"));
  EXPECT_THAT(brief("0,0,\x01\x02" + std::string(60, 'z') + "\n"), HasSubstr("\"??zzz"));
  const auto full = [&](const std::string& lines) {
    return complaint(lines, "rank,step,compute_ms,start_ms,departed,closed");
  };
  EXPECT_THAT(full("0,0,1\n"), HasSubstr("3 columns; 6 are needed"));
  EXPECT_THAT(full("0,0,1,-1,,\n"), HasSubstr("start_ms \"-1\""));
  EXPECT_THAT(full("0,0,1,1,4294967295,\n"), HasSubstr("departed \"4294967295\""));
  EXPECT_THAT(full("0,0,1,1,,x\n"), HasSubstr("closed \"x\""));
  EXPECT_THAT(complaint("", "rank,step"), HasSubstr("line 1: \"rank,step\": the header"));
  EXPECT_THAT(parse_trace("", "t.csv", 1).error().message, HasSubstr("empty"));
  EXPECT_THAT(load_trace("/nonexistent.csv", 1).error().message, HasSubstr("cannot be read"));
  EXPECT_THAT(load_trace(::testing::TempDir(), 1).error().message, HasSubstr("is a folder"));
}

TEST(PublishedTrace, SurvivesTheWireAndNothingElseDoes) {
  const RankTrace steps{{0.5, 2.25, 3, {}}, {3.0, 2.0, {}, 7}};
  const Bytes bytes = encode_trace(steps);
  const auto back = decode_trace(bytes);
  ASSERT_TRUE(back);
  EXPECT_EQ(encode_trace(*back), bytes);
  EXPECT_EQ(back->at(0).departed, 3U);
  EXPECT_EQ(back->at(1).closed, 7U);
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(decode_trace(std::span(bytes).first(size))) << size;
  }
  Bytes longer = bytes;
  longer.push_back(std::byte{0});
  EXPECT_FALSE(decode_trace(longer));
  const RankTrace never{{std::numeric_limits<double>::quiet_NaN(), 1.0, {}, {}}};
  EXPECT_FALSE(decode_trace(encode_trace(never)));
}

TEST(PublishedTrace, IsCollectedFromEveryRankThatLives) {
  std::map<std::string, Bytes> published;
  published["0/trace"] = encode_trace(RankTrace{{0.0, 1.0, {}, {}}});
  EXPECT_THAT(collect_traces(published, 2, {}).error().message, HasSubstr("rank 1"));
  const auto traces = collect_traces(published, 2, std::vector<Rank>{1});
  ASSERT_TRUE(traces);
  EXPECT_EQ(traces->at(0).size(), 1U);
  EXPECT_TRUE(traces->at(1).empty());
  published["1/trace"] = Bytes(5);
  EXPECT_THAT(collect_traces(published, 2, {}).error().message, HasSubstr("rank 1"));
}

// One rank whose rounds close at once: every step departs and closes its round, and takes at least
// the time that the trace has for it, again from the start after the last one.
TEST(TrainRank, TakesTheTimesOfATraceAndRecordsItsOwn) {
  TrainOptions options;
  options.workers = 1;
  options.epochs = 1;
  options.batch = 200;
  const TrainTask task = testing::digits_task(options);
  ASSERT_EQ(task.steps(), 7U);
  TrainerOptions trainer;
  trainer.compute_times = {std::chrono::milliseconds(1), std::chrono::milliseconds(9),
                           std::chrono::milliseconds(2)};
  trainer.slowdown = 2.0;
  trainer.trace = true;
  testing::LocalJob job(1, nobody(1));
  ASSERT_TRUE(train_rank(*job.worker(0), task, trainer));
  const auto trace = decode_trace(job.published.at("0/trace"));
  ASSERT_TRUE(trace);
  ASSERT_EQ(trace->size(), 7U);
  const std::array<double, 7> least{2, 18, 4, 2, 18, 4, 2};
  double end = 0.0;
  for (std::size_t step = 0; step < 7; ++step) {
    EXPECT_GE(trace->at(step).compute_ms, least.at(step));
    EXPECT_GE(trace->at(step).start_ms, end);
    end = trace->at(step).start_ms + trace->at(step).compute_ms;
    EXPECT_EQ(trace->at(step).departed, step);
    EXPECT_EQ(trace->at(step).closed, step);
  }
  const auto report = decode_report(job.published.at("0/train"));
  ASSERT_TRUE(report);
  EXPECT_EQ(report->steps, 7U);
  EXPECT_GE(report->compute_seconds, 0.050);
  EXPECT_GE(report->seconds, report->compute_seconds);
}

}  // namespace
}  // namespace selmcast
