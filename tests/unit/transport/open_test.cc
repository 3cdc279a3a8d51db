#include "transport/backends/open.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace selmcast {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

TEST(OpenTransport, NamesAreThoseOfTheReadme) {
  EXPECT_THAT(transport_names(), ElementsAre("auto", "shm", "uring", "verbs"));
}

TEST(OpenTransport, AnUnknownNameIsRefusedWithThoseAllowed) {
  for (const std::string name : {"tcp", "", "Shm", "sim", "auto "}) {
    const auto opened = open_transport(name, TransportConfig{});
    ASSERT_FALSE(opened) << name;
    EXPECT_EQ(opened.error().kind, ErrorKind::bad_input);
    EXPECT_THAT(opened.error().message, HasSubstr("'" + name + "'"));
    EXPECT_THAT(opened.error().message, HasSubstr("auto, shm, uring"));
  }
}

TEST(OpenTransport, AMissingInterfaceIsNamed) {
  TransportConfig config;
  config.interface = "nope0";
  const auto opened = open_transport("uring", config);
  ASSERT_FALSE(opened);
  if (opened.error().kind == ErrorKind::unavailable) GTEST_SKIP() << opened.error().message;
  EXPECT_EQ(opened.error().kind, ErrorKind::bad_input);
  EXPECT_THAT(opened.error().message, HasSubstr("nope0"));
}

TEST(OpenTransport, WhatIsUsableOpensUnderItsNameAndAutoAcrossHosts) {
  for (const BackendState& state : backend_states()) {
    const auto opened = open_transport(state.name, TransportConfig{});
    ASSERT_EQ(opened.has_value(), state.usable) << state.name << ": " << state.reason;
    if (!opened) continue;
    EXPECT_EQ((*opened)->capabilities().name, state.name);
    if (state.name != "uring") continue;
    const auto chosen = open_transport("auto", TransportConfig{});
    ASSERT_TRUE(chosen) << chosen.error().message;
    EXPECT_STREQ((*chosen)->capabilities().name, "uring");
  }
}

TEST(OpenTransport, WhatTheBuildIsWithoutSaysHowToHaveIt) {
  int without = 0;
  for (const BackendState& state : backend_states()) {
    const auto opened = open_transport(state.name, TransportConfig{});
    if (opened || opened.error().message.find("this build") == std::string::npos) continue;
    ++without;
    EXPECT_EQ(opened.error().kind, ErrorKind::unavailable);
    EXPECT_THAT(opened.error().message, HasSubstr(state.name + ":"));
    EXPECT_THAT(opened.error().message, HasSubstr("-D SELMCAST_"));
    EXPECT_FALSE(state.usable);
  }
  if (without == 0) GTEST_SKIP() << "the build has all transports";
}

TEST(BackendStates, OneForEachNameWithAReasonOrWhatItIs) {
  std::vector<std::string> names{"auto"};
  for (const BackendState& state : backend_states()) {
    names.push_back(state.name);
    EXPECT_NE(state.reason, "") << state.name;
    EXPECT_THAT(state.reason, Not(HasSubstr("\n")));
    if (state.name == "shm") {
      EXPECT_TRUE(state.usable) << state.reason;
    }
  }
  EXPECT_EQ(names, transport_names());
}

}  // namespace
}  // namespace selmcast
