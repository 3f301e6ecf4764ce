// longhaul-dashboard-fleet: a dashboard over stand-in workers and a run of theirs, for tests, for
// measurements (tests/bench/coordinator/dashboard/bench.py) and to work at the page.
//
// Prints "dashboard at http://HOST:PORT/ RUN STEP" when all is there. Then a command on each line
// of stdin, each answered by a line: "step N" finishes N steps (answer: the step's number and when,
// in ms since 1970), "link STAGE STATE" says of the link below a stage that it is lost, suspect,
// healed; "close" ends the dashboard, "open" begins it again on its port; "remove" stops the run
// and removes it. The end of stdin is the end.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <thread>

#include "base/clock.h"
#include "base/log.h"
#include "coordinator/http/dashboard_server.h"
#include "coordinator/rpc/shell_source.h"
#include "tests/bench/coordinator/dashboard/fleet.h"
#include "tests/support/temp_dir.h"

namespace longhaul::bench {
namespace {

using coordinator::DashboardOptions;
using coordinator::DashboardServer;
using coordinator::NewsForDashboard;
using coordinator::ShellSource;

class Bench {
 public:
  Status Start(DashboardOptions options, uint32_t workers, uint32_t stages, uint64_t steps) {
    LH_ASSIGN_OR_RETURN(fleet_, Fleet::Create(folder_.path(), workers));
    LH_ASSIGN_OR_RETURN(const std::string run,
                        fleet_->Train("stand-in", stages, 2 * steps + 10'000));
    LH_RETURN_IF_ERROR(fleet_->Step(steps));
    source_ = std::make_unique<ShellSource>(&fleet_->shell());
    options_ = std::move(options);
    LH_RETURN_IF_ERROR(Open());
    fmt::print("dashboard at http://{}/ {} {}\n", options_.listen, run, fleet_->step());
    std::fflush(stdout);
    return absl::OkStatus();
  }

  void Serve() {
    std::thread beats([this] {
      while (!ended_) {
        std::this_thread::sleep_for(std::chrono::seconds(1));  // as workers do
        fleet_->Beat();
      }
    });
    for (std::string line; std::getline(std::cin, line);) {
      fmt::print("{}\n", Carry(line));
      std::fflush(stdout);
    }
    ended_ = true;
    beats.join();
    dashboard_.reset();
  }

 private:
  Status Open() {
    LH_ASSIGN_OR_RETURN(auto server, DashboardServer::Start(options_, source_.get()));
    options_.listen = server->address();
    dashboard_ = std::make_shared<NewsForDashboard>(std::move(server));
    fleet_->shell().notifier().Add(dashboard_);
    return absl::OkStatus();
  }

  std::string Carry(const std::string& line) {
    std::istringstream words(line);
    std::string word, state;
    uint64_t number = 0;
    words >> word;
    if (word == "step" && words >> number) {
      const Status status = fleet_->Step(number);
      return status.ok() ? fmt::format("{} {}", fleet_->step(), UnixMsNow())
                         : std::string(Message(status));
    }
    if (word == "link" && words >> number >> state) {
      fleet_->SayLink(static_cast<uint32_t>(number), state);
      return "said";
    }
    if (word == "close") {
      dashboard_.reset();
      return "closed";
    }
    if (word == "open") {
      const Status status = Open();
      return status.ok() ? "opened" : std::string(Message(status));
    }
    if (word == "remove") {
      const Status status = fleet_->Remove();
      return status.ok() ? "removed" : std::string(Message(status));
    }
    return "expected: step N, link STAGE STATE, close, open or remove";
  }

  testing::TempDir folder_;
  std::unique_ptr<Fleet> fleet_;
  std::unique_ptr<ShellSource> source_;
  DashboardOptions options_;
  std::shared_ptr<NewsForDashboard> dashboard_;
  std::atomic<bool> ended_ = false;
};

int Main(int argc, char** argv) {
  DashboardOptions options{.listen = "127.0.0.1:0", .reports = "", .version = "stand-in"};
  uint32_t workers = 8, stages = 8;
  uint64_t steps = 200;
  CLI::App app("A dashboard over stand-in workers.");
  app.add_option("--http", options.listen, "host:port to serve at")->capture_default_str();
  app.add_option("--reports", options.reports, "folder with results folders of sweeps");
  app.add_option("--workers", workers, "how many workers there are")->capture_default_str();
  app.add_option("--stages", stages, "how many of them have a stage")->capture_default_str();
  app.add_option("--steps", steps, "how many steps the run has behind it")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  if (const Status status = InitLogging("warn"); !status.ok()) return 1;
  Bench bench;
  if (const Status status = bench.Start(options, workers, stages, steps); !status.ok()) {
    fmt::print(stderr, "longhaul-dashboard-fleet: {}\n", Message(status));
    return 1;
  }
  bench.Serve();
  return 0;
}

}  // namespace
}  // namespace longhaul::bench

int main(int argc, char** argv) {
  return longhaul::bench::Main(argc, argv);
}
