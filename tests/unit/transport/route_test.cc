// Which interface leads to the store, on this machine's own addresses. Routes to other hosts are
// tested in network namespaces.
#include "transport/backends/route.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace selmcast {
namespace {

using testing::HasSubstr;

StoreAddress address_of(const std::string& text) {
  auto out = parse_store_address(text);
  EXPECT_TRUE(out) << text;
  return out.value();
}

TEST(StoreRoute, AStoreOnThisHostIsReachedOverLoopback) {
  for (const std::string text : {"file:/tmp/store", "tcp://127.0.0.1:7000", "tcp://127.0.1.1:7000",
                                 "tcp://localhost:7000"}) {
    const auto route = route_to(address_of(text));
    ASSERT_TRUE(route) << text << ": " << route.error().message;
    EXPECT_EQ(route->interface, "lo") << text;
    EXPECT_TRUE(route->loopback) << text;
    EXPECT_EQ(route->why, "the store at " + text + " is on this host");
  }
}

TEST(StoreRoute, AHostThatDoesNotResolveIsNamed) {
  const auto route = route_to(address_of("tcp://no-such-host.invalid:7000"));
  ASSERT_FALSE(route);
  EXPECT_EQ(route.error().kind, ErrorKind::bad_input);
  EXPECT_THAT(route.error().message, HasSubstr("no-such-host.invalid"));
}

}  // namespace
}  // namespace selmcast
