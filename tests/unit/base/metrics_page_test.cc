#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/metrics/page.h"

namespace longhaul::metrics {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

struct Thing {
  double size = 0;
  bool known = true;
};

constexpr Row<Thing> kRows[] = {
    {"thing_size_bytes", Kind::kGauge, "Size.",
     [](const Thing& thing) -> std::optional<double> { return thing.size; }},
    {"thing_uses_total", Kind::kCounter, "Uses.",
     [](const Thing& thing) { return thing.known ? std::optional(thing.size * 2) : std::nullopt; }},
};

TEST(MetricsPage, EveryRowIsAFamilyWithASampleOfEachThingOfWhichItIsKnown) {
  const Thing one{.size = 3}, other{.size = 0.125, .known = false};
  Page page;
  AddRows<Thing>(&page, kRows, {"name"}, {{{"one"}, &one}, {{"other"}, &other}});
  EXPECT_EQ(ToText(page),
            "# HELP thing_size_bytes Size.\n"
            "# TYPE thing_size_bytes gauge\n"
            "thing_size_bytes{name=\"one\"} 3\n"
            "thing_size_bytes{name=\"other\"} 0.125\n"
            "# HELP thing_uses_total Uses.\n"
            "# TYPE thing_uses_total counter\n"
            "thing_uses_total{name=\"one\"} 6\n");
}

TEST(MetricsPage, AFamilyWithoutSamplesIsListed) {
  Page page;
  AddRows<Thing>(&page, kRows, {"name"}, {});
  EXPECT_THAT(ToText(page), HasSubstr("# TYPE thing_uses_total counter\n"));
  EXPECT_THAT(ToText(page), Not(HasSubstr("{")));
}

// Users name runs and workers.
TEST(MetricsPage, TextOfStrangersCannotMakeLinesOfItsOwn) {
  Page page;
  AddFamily(&page, Kind::kGauge, "a", "A.", {"name"}).samples.push_back({{"x\"} 1\nb 2\\"}, 7});
  EXPECT_EQ(ToText(page),
            "# HELP a A.\n# TYPE a gauge\n"
            "a{name=\"x\\\"} 1\\nb 2\\\\\"} 7\n");
}

}  // namespace
}  // namespace longhaul::metrics
