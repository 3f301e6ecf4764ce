#include "tests/multiprocess/cluster/harness.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>

#include "base/clock.h"
#include "base/file.h"
#include "deploy/cluster/network.h"
#include "deploy/cluster/process.h"
#include "deploy/cluster/requirements.h"

namespace longhaul::testing {
namespace {

// Outputs are files, and a file has no event that a wait with a deadline could use.
constexpr useconds_t kPollMicroseconds = 2000;

std::string DefaultDirectory(const std::string& name) {
  return fmt::format("/var/tmp/longhaul-{}/{}", geteuid(), name);
}

}  // namespace

Running::Running(const std::vector<std::string>& command) {
  const std::string path = folder_.path() + "/output";
  std::vector<char*> arguments;
  for (const std::string& argument : command) {
    arguments.push_back(const_cast<char*>(argument.c_str()));
  }
  arguments.push_back(nullptr);
  const int out = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  pid_ = fork();
  if (pid_ == 0) {
    dup2(out, STDOUT_FILENO);
    dup2(out, STDERR_FILENO);
    execvp(arguments[0], arguments.data());
    _exit(127);
  }
  close(out);
}

Running::~Running() {
  if (Ended()) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

std::string Running::output() const {
  return ReadFile(folder_.path() + "/output").value_or("");
}

bool Running::Ended() {
  if (code_ >= 0) return true;
  int status = 0;
  if (waitpid(pid_, &status, WNOHANG) != pid_) return false;
  code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return true;
}

bool Running::WaitForOutput(std::string_view text, absl::Duration limit) {
  const Deadline deadline = Deadline::After(limit);
  while (true) {
    const bool ended = Ended();
    if (output().find(text) != std::string::npos) return true;
    if (ended || deadline.Expired()) return false;
    usleep(kPollMicroseconds);
  }
}

void Running::Signal(int signal) {
  if (!Ended()) kill(pid_, signal);
}

int Running::Wait(absl::Duration limit) {
  const Deadline deadline = Deadline::After(limit);
  while (!Ended()) {
    if (deadline.Expired()) {
      ADD_FAILURE() << "still running; it wrote:\n" << output();
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
      code_ = 128 + SIGKILL;
    } else {
      usleep(kPollMicroseconds);
    }
  }
  return code_;
}

ClusterTest::ClusterTest() {
  static std::atomic<int> number = 0;
  name_ = fmt::format("t{}_{}", getpid(), ++number);
  setenv("XDG_RUNTIME_DIR", runtime_.path().c_str(), 1);
  unsetenv("LONGHAUL_STAND_IN_FAIL");
  unsetenv("LONGHAUL_STAND_IN_SILENT");
}

ClusterTest::~ClusterTest() {
  Running(Command({"down"})).Wait();
}

std::vector<std::string> ClusterTest::Command(std::vector<std::string> arguments) const {
  arguments.insert(arguments.begin(), {LONGHAUL_CLUSTER_PROGRAM, "cluster"});
  arguments.insert(arguments.end(), {"--name", name_});
  return arguments;
}

std::vector<std::string> ClusterTest::Up(std::vector<std::string> more) const {
  more.insert(more.begin(), {"up", "--coordinator-program", LONGHAUL_STAND_IN_DAEMON,
                             "--worker-program", LONGHAUL_STAND_IN_DAEMON, "--insecure"});
  return Command(std::move(more));
}

std::string ClusterTest::Expect(int exit_code, const std::vector<std::string>& command) const {
  Running running(command);
  EXPECT_EQ(running.Wait(), exit_code) << ToString(command) << "\n" << running.output();
  return running.output();
}

nlohmann::json ClusterTest::Status() const {
  return nlohmann::json::parse(Expect(0, Command({"status", "--json"})), nullptr, false);
}

nlohmann::json ClusterTest::Worker(int worker) const {
  return Status()["workers"][static_cast<size_t>(worker - 1)];
}

std::string ClusterTest::Address(int worker) const {
  return Worker(worker)["data_address"];
}

std::vector<std::string> ClusterTest::Traffic(int worker, const std::string& mode,
                                              const std::string& address, int number) const {
  return {"ip",
          "netns",
          "exec",
          network(worker),
          "/usr/bin/python3",
          LONGHAUL_TRAFFIC_SCRIPT,
          mode,
          address,
          std::to_string(number)};
}

std::pair<ClusterTest::Received, ClusterTest::Received> ClusterTest::DuplexTraffic(
    int from, int to, int seconds) const {
  const std::string address = Address(to);
  Running listener(Traffic(to, "duplex-listen", address, seconds));
  Running dialler(Traffic(from, "duplex-dial", address, seconds));
  EXPECT_EQ(listener.Wait(), 0) << listener.output();
  EXPECT_EQ(dialler.Wait(), 0) << dialler.output();
  const auto listened = nlohmann::json::parse(listener.output(), nullptr, false);
  const auto dialled = nlohmann::json::parse(dialler.output(), nullptr, false);
  if (listened.is_discarded() || dialled.is_discarded()) return {};
  const auto received = [](const nlohmann::json& end, const nlohmann::json& other) {
    // Full frames: 1448 bytes of payload in 1514. A bucket holds a GSO packet or a little more.
    const double bytes = end["bytes"].get<double>() * 1514 / 1448 - 72 * 1024;
    const double passed = end["ended"].get<double>() - other["began"].get<double>();
    return Received{end["goodput"], bytes * 8 / passed};
  };
  return {received(listened, dialled), received(dialled, listened)};
}

void ClusterTest::ExpectNothingLeft() const {
  const NetworkRemains network = FindNetwork(name_);
  EXPECT_THAT(network.networks, ::testing::IsEmpty());
  EXPECT_FALSE(network.host_interface);
  EXPECT_EQ(FindDaemons(name_).size(), 0u);
  EXPECT_NE(access(ClusterStateFolder(name_).c_str(), F_OK), 0) << ClusterStateFolder(name_);
  EXPECT_NE(access(ClusterRuntimeRoot().c_str(), F_OK), 0) << ClusterRuntimeRoot();
  EXPECT_NE(access(DefaultDirectory(name_).c_str(), F_OK), 0) << DefaultDirectory(name_);
}

std::string ClusterTest::network(int worker) const {
  return WorkerNetwork(name_, static_cast<uint32_t>(worker));
}

int SkipCode() {
  const longhaul::Status met = CheckRequirements(ThisMachine());
  if (met.ok()) return 0;
  const bool required = std::getenv("LONGHAUL_REQUIRE_ROOT") != nullptr;
  fmt::print("{} {}\n", required ? "LONGHAUL_REQUIRE_ROOT is set, but" : "skipped:", Message(met));
  return required ? 1 : 77;
}

}  // namespace longhaul::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleMock(&argc, argv);
  if (const int skip = longhaul::testing::SkipCode(); skip != 0) return skip;
  return RUN_ALL_TESTS();
}
