// Ranks on fake devices.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/unit/verbs/fake/fake.h"
#include "transport/verbs/ipoib.h"
#include "transport/verbs/verbs_transport.h"

namespace selmcast::verbs_test {

using std::chrono::milliseconds;

inline TransportConfig config_on(const std::string& devices) {
  TransportConfig config;
  config.job = 7;
  config.world = 2;
  config.interface = devices;
  return config;
}

inline Result<std::unique_ptr<Transport>> try_open(const std::string& devices = "fake0",
                                                   bool shared = true, std::uint64_t job = 7) {
  TransportConfig config = config_on(devices);
  config.job = job;
  config.shared_receive_queue = shared;
  return open_verbs(config);
}

/// Null, and a failure of the test, where it cannot be opened.
inline std::unique_ptr<Transport> open(const TransportConfig& config) {
  auto out = open_verbs(config);
  EXPECT_TRUE(out) << (out ? "" : out.error().message);
  return out ? std::move(out).value() : nullptr;
}
inline std::unique_ptr<Transport> open(const std::string& devices = "fake0", bool shared = true) {
  TransportConfig config = config_on(devices);
  config.shared_receive_queue = shared;
  return open(config);
}

/// A folder in the place of /sys/class/net, as long as this lives.
class Interfaces {
 public:
  Interfaces() {
    std::string name = testing::TempDir() + "interfaces-XXXXXX";
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    folder_ = verbs::interfaces_folder() = name;
  }
  ~Interfaces() {
    verbs::interfaces_folder() = "/sys/class/net";
    std::filesystem::remove_all(folder_);
  }
  Interfaces(const Interfaces&) = delete;
  Interfaces& operator=(const Interfaces&) = delete;

  const std::string& folder() const { return folder_; }
  void write(const std::string& interface, const std::string& file, const std::string& text) const {
    std::filesystem::create_directories(folder_ + "/" + interface);
    std::ofstream(folder_ + "/" + interface + "/" + file) << text << "\n";
  }
  /// An interface of the port whose GIDs end in these eight bytes.
  void add(const std::string& interface, const std::string& identifier,
           const std::string& pkey = "0xffff") const {
    write(interface, "type", "32");
    write(interface, "address", "80:00:02:08:fe:80:00:00:00:00:00:00:" + identifier);
    write(interface, "pkey", pkey);
  }

 private:
  std::string folder_;
};

/// Turns every fake device into one of an InfiniBand port. Loopback, which has an IPv4 address,
/// stands for the interface of all of them, so their GIDs differ in their prefixes only.
inline std::unique_ptr<Interfaces> be_infiniband() {
  std::uint8_t prefix = 0;
  for (fake::Device& device : fake::world().devices) {
    fake::Port& port = device.ports[0];
    port.link_layer = IBV_LINK_LAYER_INFINIBAND;
    port.lid = 5;
    port.gids[0].raw = {0xFE, 0x80, 0, 0, 0, 0, 0, prefix++, 2, 0, 0, 0, 0, 0, 0, 1};
  }
  auto out = std::make_unique<Interfaces>();
  out->add("lo", "02:00:00:00:00:00:00:01");
  return out;
}

/// What must hold when every transport is gone.
inline void expect_nothing_alive(const std::string& after) {
  const auto& live = fake::world().live;
  for (std::size_t kind = 0; kind < live.size(); ++kind) {
    EXPECT_EQ(live[kind], 0) << "objects of kind " << kind << " after " << after;
  }
  EXPECT_THAT(fake::world().violations, testing::IsEmpty()) << after;
}

/// One rank: its transport, memory to send from and what it was told.
struct RankOn {
  explicit RankOn(const std::string& devices = "fake0", bool shared = true)
      : transport(open(devices, shared)) {
    auto made = transport->register_memory(memory);
    EXPECT_TRUE(made);
    region = std::move(made).value();
  }

  Endpoint to(const RankOn& other) {
    auto made = transport->connect(other.transport->address());
    EXPECT_TRUE(made) << (made ? "" : made.error().message);
    return std::move(made).value();
  }
  Membership join(std::uint32_t group, JoinAs as = JoinAs::receiver) {
    auto made = transport->join({group}, as);
    EXPECT_TRUE(made) << (made ? "" : made.error().message);
    return std::move(made).value();
  }
  /// A frame of `bytes` bytes that all are `mark`.
  PostOutcome send(const Destination& to, std::uint8_t mark, std::uint64_t user,
                   std::uint32_t bytes = 100) {
    std::byte* const at = memory.data() + std::size_t{mark} * 1024;
    std::fill(at, at + bytes, std::byte{mark});
    const LocalSlice slice{.data = at, .bytes = bytes, .region = region.id()};
    const SendRequest request{
        .destination = to, .slices = {&slice, 1}, .frame_bytes = 0, .user = user};
    return transport->post_sends({&request, 1});
  }
  void poll() {
    std::array<Completion, 64> out;
    const std::size_t count = transport->poll(out);
    for (std::size_t i = 0; i < count; ++i) {
      if (out[i].kind == Completion::Kind::receive) {
        received.emplace_back(out[i].data, out[i].data + out[i].bytes);
        if (keep) {
          kept.push_back(out[i].token);
        } else {
          const ReceiveRequest back{out[i].token};
          transport->post_receives({&back, 1});
        }
      } else {
        done.push_back(out[i]);
      }
    }
  }

  std::vector<std::byte> memory = std::vector<std::byte>(256 * 1024);
  std::unique_ptr<Transport> transport;
  Region region;
  bool keep = false;
  std::vector<std::vector<std::byte>> received;
  std::vector<std::uint32_t> kept;
  std::vector<Completion> done;
};

/// Polls until `ready`, at most `limit`.
inline bool pump(const std::vector<RankOn*>& ranks, const std::function<bool()>& ready,
                 milliseconds limit = milliseconds(5000)) {
  const auto end = std::chrono::steady_clock::now() + limit;
  for (;;) {
    for (RankOn* rank : ranks) rank->poll();
    if (ready()) return true;
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

}  // namespace selmcast::verbs_test
