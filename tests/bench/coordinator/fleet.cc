// longhaul-fleet: many workers' sessions in one process, with certificates of their own and the
// code that workers dial with, but without devices and links. For fleet.py, which measures how long
// it takes until all are back after their coordinator was gone.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <condition_variable>
#include <filesystem>
#include <iostream>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/address.h"
#include "base/clock.h"
#include "proto/member/access.h"
#include "proto/rpc/channel.h"
#include "tests/support/state_harness.h"
#include "tests/support/worker_answers.h"
#include "worker/agent/session.h"

namespace longhaul::bench {
namespace {

constexpr absl::Duration kJoinLimit = absl::Seconds(30);

struct Options {
  std::string coordinator, token_file, folder;
  uint32_t workers = 250, first = 0;
};

class StandInSession {
 public:
  StandInSession(std::shared_ptr<Access> access, const std::string& id, const std::string& name)
      : hello_(coordinator::HelloOf(name)) {
    hello_.set_worker_id(id);
    session_ = std::make_unique<worker::Session>(worker::SessionOptions{
        .access = std::move(access),
        .hello = [this] { return hello_; },
        .moved = nullptr,
        .on_command = [this](const v1::WorkerCommand& command) { Take(command); }});
    {
      const std::lock_guard lock(mutex_);
      ready_ = true;
    }
    changed_.notify_all();
  }

 private:
  void Take(const v1::WorkerCommand& command) {
    if (!command.try_reach().dial()) return;
    v1::WorkerMessage message;
    *message.mutable_reach_tried() = testing::ReachTriedOf(command.try_reach());
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return ready_; });
    session_->Send(std::move(message));
  }

  v1::Hello hello_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ready_ = false;  // session_ is set
  std::unique_ptr<worker::Session> session_;
};

Status Run(const Options& options) {
  RaiseFileLimit();
  std::filesystem::create_directories(options.folder);
  LH_ASSIGN_OR_RETURN(const std::vector<std::string> addresses,
                      ParseAddressList(options.coordinator));
  std::vector<std::unique_ptr<StandInSession>> sessions;
  for (uint32_t i = 0; i < options.workers; ++i) {
    const std::string name = fmt::format("w{:04}", options.first + i);
    const std::string id = "id-" + name;
    LH_ASSIGN_OR_RETURN(
        std::shared_ptr<Access> access,
        Access::Open({.addresses = addresses,
                      .token_file = options.token_file,
                      .credentials_file = fmt::format("{}/{}.pem", options.folder, name),
                      .role = Role::kWorker,
                      .name = name,
                      .worker_id = id},
                     kJoinLimit));
    sessions.push_back(std::make_unique<StandInSession>(std::move(access), id, name));
  }
  std::cout << fmt::format("{} sessions dial", sessions.size()) << std::endl;
  // Until standard input ends.
  std::string line;
  while (std::getline(std::cin, line)) {
  }
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app("Many workers' sessions, until standard input ends.");
  app.add_option("--coordinator", options.coordinator)->required();
  app.add_option("--token-file", options.token_file, "With a join token for workers")->required();
  app.add_option("--folder", options.folder, "For certificates")->required();
  app.add_option("--workers", options.workers)->capture_default_str();
  app.add_option("--first", options.first, "Number of the first worker")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  const Status status = Run(options);
  if (status.ok()) return 0;
  fmt::print(stderr, "{}\n", Message(status));
  return 1;
}

}  // namespace
}  // namespace longhaul::bench

int main(int argc, char** argv) {
  return longhaul::bench::Main(argc, argv);
}
