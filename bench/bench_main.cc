// Google Benchmark with this project's habits: the machine's facts first, warm-up, repeats, and
// median with spread instead of single figures. Flags given on the command line override these.
#include <benchmark/benchmark.h>

#include <iostream>
#include <string>
#include <vector>

#include "hwconf/machine.h"

int main(int argc, char** argv) {
  std::vector<std::string> words{argv[0],
                                 "--benchmark_repetitions=7",
                                 "--benchmark_min_warmup_time=0.1",
                                 "--benchmark_min_time=0.1",
                                 "--benchmark_enable_random_interleaving=true",
                                 "--benchmark_report_aggregates_only=true"};
  words.insert(words.end(), argv + 1, argv + argc);
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  int count = static_cast<int>(arguments.size());
  arguments.push_back(nullptr);
  benchmark::Initialize(&count, arguments.data());
  if (benchmark::ReportUnrecognizedArguments(count, arguments.data())) return 2;
  std::cerr << selmcast::machine_facts(selmcast::describe_machine()) << '\n';
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
