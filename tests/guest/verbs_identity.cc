// An address that is taken from a device's interface while a rank uses it, and given back.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <thread>
#include <vector>

#include "tests/guest/devices.h"
#include "transport/verbs/verbs_transport.h"

namespace selmcast::guest {
namespace {

using std::chrono::seconds;

constexpr const char* kAddress = "10.77.99.1/16";
constexpr const char* kGid = "0000:0000:0000:0000:0000:ffff:0a4d:6301";

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string port_folder() {
  return "/sys/class/infiniband/" + device_names()[0] + "/ports/1/";
}

/// Index of the RoCE v2 GID of kAddress; -1: there is none.
int index_of_gid() {
  for (int i = 0; i < 64; ++i) {
    const std::string index = std::to_string(i);
    if (first_line(port_folder() + "gids/" + index) == kGid &&
        first_line(port_folder() + "gid_attrs/types/" + index) == "RoCE v2") {
      return i;
    }
  }
  return -1;
}

bool change_address(const std::string& verb) {
  const std::string interface = first_line(port_folder() + "gid_attrs/ndevs/0");
  const std::string command = "ip address " + verb + " " + kAddress + " dev " + interface;
  return std::system(command.c_str()) == 0;  // NOLINT: the only thread that runs programs
}

/// Polls the rank until `ready`.
template <class Ready>
bool until(Transport& rank, Ready ready) {
  std::vector<Completion> out(64);
  for (const auto end = std::chrono::steady_clock::now() + seconds(10);
       std::chrono::steady_clock::now() < end;) {
    rank.poll(out);
    if (ready()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

TEST(VerbsIdentity, AnAddressThatGoesIsNamedAndWhereItComesBack) {
  ASSERT_TRUE(change_address("add"));
  int index = -1;
  for (int tries = 0; index < 0 && tries < 500; ++tries) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    index = index_of_gid();
  }
  ASSERT_GE(index, 0);
  TransportConfig config;
  config.job = 55;
  config.world = 2;
  config.interface = device_names()[0] + ":1:" + std::to_string(index);
  auto rank = open_verbs(config);
  ASSERT_TRUE(rank) << rank.error().message;
  EXPECT_EQ((*rank)->last_error(), "");

  ASSERT_TRUE(change_address("del"));
  ASSERT_TRUE(until(**rank, [&] { return !(*rank)->last_error().empty(); }));
  EXPECT_NE((*rank)->last_error().find("GID index " + std::to_string(index) +
                                       " was ::ffff:10.77.99.1 at set-up and is empty now"),
            std::string::npos)
      << (*rank)->last_error();

  ASSERT_TRUE(change_address("add"));
  // The kernel keeps an index while somebody uses it, so that the GID may come back at another one.
  const auto is_at = [&] { return "the GID is at index " + std::to_string(index_of_gid()); };
  EXPECT_TRUE(until(**rank, [&] {
    const std::string text = (*rank)->last_error();
    return text.empty() ? index_of_gid() == index : text.find(is_at()) != std::string::npos;
  })) << (*rank)->last_error();
  EXPECT_TRUE(change_address("del"));
}

}  // namespace
}  // namespace selmcast::guest
