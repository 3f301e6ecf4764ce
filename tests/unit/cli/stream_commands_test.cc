// `longhaul logs` and `events`.
#include <nlohmann/json.hpp>

#include "tests/unit/cli/cli_test.h"

namespace longhaul::cli {
namespace {

TEST_F(CliTest, LogsAndEvents) {
  v1::LogEntry entry;
  entry.set_worker_name("worker1");
  entry.mutable_line()->set_unix_ms(1'000'000'000'000);
  entry.mutable_line()->set_level("info");
  entry.mutable_line()->set_text("hello\033[2J");
  control_.logs = {entry};
  EXPECT_EQ(Ask({"logs", "a"}).out, "2001-09-09T01:46:40.000Z worker1 info hello?[2J\n");
  EXPECT_EQ(nlohmann::json::parse(Ask({"logs", "a", "-f", "--json"}).out)["line"]["level"], "info");
  v1::Event event;
  event.set_unix_ms(1'000'000'000'000);
  event.set_run_id("a-1");
  event.set_kind("state");
  event.set_text("running");
  control_.events = {event};
  EXPECT_EQ(Ask({"events", "a-1"}).out, "2001-09-09T01:46:40.000Z state      running\n");
  EXPECT_EQ(Ask({"events"}).out, "2001-09-09T01:46:40.000Z a-1 state      running\n");
  EXPECT_EQ(nlohmann::json::parse(Ask({"events", "--json"}).out)["kind"], "state");
}

}  // namespace
}  // namespace longhaul::cli
