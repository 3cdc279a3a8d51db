// Joins a job of one worker without a store to meet at, which must fail with a clear error: that
// is enough to need every part of the library.
#include <memory.h>
#include <selmcast/memory.h>
#include <selmcast/worker.h>

#include <cstdio>

int main() {
  char path[6];
  memset(path, 'x', sizeof path);  // Of the system's <memory.h>, which ours must not hide.
  selmcast::WorkerConfig config;
  config.rendezvous = "nonsense:where";
  config.timeout = std::chrono::milliseconds(200);
  const auto worker = selmcast::Worker::join(config);
  if (worker) {
    std::puts("joined nowhere");
    return 1;
  }
  std::printf("error: %s\n", worker.error().message.c_str());
  return worker.error().message.empty() ? 1 : 0;
}
