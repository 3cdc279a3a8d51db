#include "plan/axes/route.h"

namespace selmcast {
namespace {

Result<Route> parse_servers(const Word& word) {
  const auto servers = number_within(word.argument().value_or(""), 1, kMaxWorkers);
  if (servers) return Route{RouteKind::servers, *servers};
  return bad_input("policy: route=ps needs a number of servers, 1 to " +
                   std::to_string(kMaxWorkers) + ", found " + quoted(word.text) +
                   "; write for example route=ps:1");
}

std::string print_servers(const Route& value) {
  return ":" + std::to_string(value.servers);
}

constexpr Row<Route> kRoutes[] = {
    {.form = "star",
     .meaning = "one multicast per sender where the transport has it",
     .kind = RouteKind::star,
     .is_default = true,
     .examples = "star",
     .traits = {.is = {Trait::multicast}}},
    {.form = "unicast",
     .meaning = "one copy per receiver",
     .kind = RouteKind::unicast,
     .examples = "unicast",
     .traits = {.is = {Trait::unicast}}},
    {.form = "ps:servers",
     .meaning = "so many of the ranks gather a share of the parameters each and hand the mean out",
     .kind = RouteKind::servers,
     .examples = "ps:1",
     .parse = parse_servers,
     .print = print_servers,
     .traits = {.is = {Trait::servers}}},
    {.form = "ring"},
    {.form = "hier"},
    {.form = "forest"},
};

}  // namespace

AxisTable<Route> Route::axis() noexcept {
  return {"route", kRoutes};
}

}  // namespace selmcast
