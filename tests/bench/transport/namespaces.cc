#include "tests/bench/transport/namespaces.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>

#include "base/clock.h"
#include "base/shutdown.h"
#include "deploy/cluster/relay/control.h"

namespace longhaul::bench {
namespace {

constexpr const char* kDevice = "lh0";

// Only calls that are safe between fork and exec.
[[noreturn]] void Exec(const std::vector<char*>& argv) {
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  execvp(argv[0], argv.data());
  _exit(127);
}

std::vector<char*> Argv(const std::vector<std::string>& arguments) {
  std::vector<char*> argv;
  argv.reserve(arguments.size() + 1);
  for (const std::string& a : arguments) argv.push_back(const_cast<char*>(a.c_str()));
  argv.push_back(nullptr);
  return argv;
}

struct Child {
  pid_t pid;
  int pipe;  // what it writes to the stream in question
};
// Starts a program with `stream` (STDOUT_FILENO or STDERR_FILENO) on a pipe.
StatusOr<Child> Spawn(const std::vector<std::string>& arguments, int stream) {
  int pipe_fds[2];
  if (pipe2(pipe_fds, O_CLOEXEC) != 0) return FromErrno("cannot make a pipe", errno);
  const std::vector<char*> argv = Argv(arguments);
  const pid_t pid = fork();
  if (pid < 0) return FromErrno("cannot start a process", errno);
  if (pid == 0) {
    dup2(pipe_fds[1], stream);
    Exec(argv);
  }
  close(pipe_fds[1]);
  return Child{pid, pipe_fds[0]};
}

}  // namespace

Status RunCommand(const std::vector<std::string>& arguments) {
  LH_ASSIGN_OR_RETURN(const Child child, Spawn(arguments, STDERR_FILENO));
  std::string words;
  char buffer[512];
  for (ssize_t n; (n = read(child.pipe, buffer, sizeof(buffer))) > 0;) words.append(buffer, n);
  close(child.pipe);
  int status = 0;
  waitpid(child.pid, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return absl::OkStatus();
  std::string command;
  for (const std::string& a : arguments) command += a + " ";
  while (!words.empty() && words.back() == '\n') words.pop_back();
  return FailedPrecondition("`{}` failed: {}", command.substr(0, command.size() - 1),
                            words.empty() ? "is iproute2 installed?" : words);
}

// The process id keeps two benchmarks apart.
Namespaces::Namespaces(const LinkQuality& path)
    : path_(path),
      between_(fmt::format("lhbench-{}-between", getpid())),
      relay_socket_(fmt::format("/tmp/lhbench-{}.sock", getpid())) {
  for (int end : {0, 1}) names_[end] = fmt::format("lhbench-{}-{}", getpid(), end);
}

std::string Namespaces::Ip(int end) {
  return fmt::format("10.77.0.{}", end + 1);
}

StatusOr<std::unique_ptr<Namespaces>> Namespaces::Create(const LinkQuality& path,
                                                         const std::string& relay_program) {
  std::unique_ptr<Namespaces> namespaces(new Namespaces(path));
  if (const Status status = namespaces->SetUp(relay_program); !status.ok()) {
    return FailedPrecondition("this needs root, network namespaces, veth and tbf: {}",
                              Message(status));
  }
  return namespaces;
}

Status Namespaces::Join() {
  return RunCommand({"ip", "link", "add", kDevice, "netns", names_[0], "type", "veth", "peer",
                     "name", kDevice, "netns", names_[1]});
}

Status Namespaces::JoinByRelay(const std::string& relay_program) {
  LH_RETURN_IF_ERROR(RunCommand({"ip", "netns", "add", between_}));
  relay::RelayConfig config;
  config.paths.assign(4, path_);
  for (int end : {0, 1}) {
    const std::string port = fmt::format("p{}", end);
    LH_RETURN_IF_ERROR(RunCommand(
        {"ip", "-n", between_, "link", "add", port, "type", "veth", "peer", "name", kDevice,
         "address", relay::MacAddress(static_cast<uint32_t>(end) + 1), "netns", names_[end]}));
    LH_RETURN_IF_ERROR(RunCommand({"ip", "-n", between_, "link", "set", port, "up"}));
    config.ports.push_back({port, true});
  }
  LH_ASSIGN_OR_RETURN(relay_, Process::Start({"ip", "netns", "exec", between_, relay_program,
                                              "--relay", relay_socket_}));
  return relay::AskStartedRelay(relay_socket_, &config, Deadline::After(absl::Seconds(10)))
      .status();
}

Status Namespaces::SetUp(const std::string& relay_program) {
  for (const std::string& name : names_) {
    LH_RETURN_IF_ERROR(RunCommand({"ip", "netns", "add", name}));
    // Room for what a long line holds, as in a local cluster.
    for (const char* buffers :
         {"4096 16384 33554432 > tcp_wmem", "4096 33554432 33554432 > tcp_rmem"}) {
      LH_RETURN_IF_ERROR(RunCommand({"ip", "netns", "exec", name, "sh", "-c",
                                     fmt::format("cd /proc/sys/net/ipv4 && echo {}", buffers)}));
    }
  }
  LH_RETURN_IF_ERROR(path_.Perfect() ? Join() : JoinByRelay(relay_program));
  for (int end : {0, 1}) {
    const std::string& name = names_[end];
    LH_RETURN_IF_ERROR(
        RunCommand({"ip", "-n", name, "address", "add", Ip(end) + "/24", "dev", kDevice}));
    LH_RETURN_IF_ERROR(RunCommand({"ip", "-n", name, "link", "set", "lo", "up"}));
    LH_RETURN_IF_ERROR(RunCommand({"ip", "-n", name, "link", "set", kDevice, "up"}));
    // Packets are lost one by one, as on a real line, and not 64 KB at a time.
    if (path_.loss > 0) {
      LH_RETURN_IF_ERROR(
          RunCommand({"ip", "-n", name, "link", "set", kDevice, "gso_max_segs", "1"}));
    }
    // The same everywhere, whatever the host's default is; the sysctl is refused in a namespace.
    LH_RETURN_IF_ERROR(RunCommand({"ip", "-n", name, "route", "replace", "10.77.0.0/24", "dev",
                                   kDevice, "src", Ip(end), "congctl", "cubic"}));
  }
  return Shape(1'000'000'000);
}

Status Namespaces::Shape(uint64_t bits_per_second) {
  // The burst must exceed one GSO packet, else the kernel segments in software.
  // A queue of a round trip, as a router on such a line has, lets TCP use all of it.
  const std::string queue = fmt::format(
      "{}ms", absl::ToInt64Milliseconds(std::max(absl::Milliseconds(50), 2 * path_.delay)));
  std::vector<std::string> limits = {"burst", "72kb", "latency", queue};
  if (bits_per_second > 300'000'000) limits = {"burst", "128kb", "latency", queue};
  if (bits_per_second > 1'000'000'000) limits = {"burst", "1mb", "limit", "4mb"};
  for (const std::string& name : names_) {
    std::vector<std::string> command = {"tc",
                                        "-n",
                                        name,
                                        "qdisc",
                                        "replace",
                                        "dev",
                                        kDevice,
                                        "root",
                                        "tbf",
                                        "rate",
                                        fmt::format("{}bit", bits_per_second)};
    command.insert(command.end(), limits.begin(), limits.end());
    LH_RETURN_IF_ERROR(RunCommand(command));
  }
  return absl::OkStatus();
}

Namespaces::~Namespaces() {
  relay_.reset();
  unlink(relay_socket_.c_str());
  if (!path_.Perfect()) RunCommand({"ip", "netns", "delete", between_}).IgnoreError();
  for (const std::string& name : names_) {
    // The veth pair goes with them. One that was never made has nothing to say.
    RunCommand({"ip", "netns", "delete", name}).IgnoreError();
  }
}

StatusOr<std::unique_ptr<Process>> Process::Start(const std::vector<std::string>& arguments) {
  LH_ASSIGN_OR_RETURN(const Child child, Spawn(arguments, STDOUT_FILENO));
  return std::unique_ptr<Process>(new Process(child.pid, child.pipe));
}

Process::~Process() {
  close(fd_);
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

StatusOr<std::string> Process::ReadLine(double limit_seconds) {
  const Deadline deadline = Deadline::After(absl::Seconds(limit_seconds));
  while (true) {
    if (const size_t end = buffer_.find('\n'); end != std::string::npos) {
      std::string line = buffer_.substr(0, end);
      buffer_.erase(0, end + 1);
      return line;
    }
    if (deadline.Expired()) return absl::DeadlineExceededError("the peer process said nothing");
    if (WaitForShutdownSignal(absl::ZeroDuration()) != 0) {
      return absl::CancelledError("interrupted");
    }
    pollfd ready{.fd = fd_, .events = POLLIN, .revents = 0};
    if (poll(&ready, 1, 50) <= 0) continue;
    char chunk[4096];
    const ssize_t n = read(fd_, chunk, sizeof(chunk));
    if (n <= 0) return absl::UnavailableError("the peer process ended early");
    buffer_.append(chunk, n);
  }
}

}  // namespace longhaul::bench
