// Every command of `longhaul` against a coordinator in this process: output for people, for pipes
// and for machines, exit codes, and what is said when something is wrong.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/clock.h"
#include "base/hash.h"
#include "coordinator/cli/program.h"
#include "tests/unit/coordinator/cli/fake_control.h"

namespace longhaul::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr char kToken[] = "0123456789abcdef0123456789abcdef";
constexpr char kRunFile[] = R"(name: tiny
model: { layers: 2, hidden: 16, heads: 2, context: 8 }
data: { text: [corpus/*.txt] }
train: { steps: 20, microbatches: 4 }
links: { forward: none, backward: none }
)";

struct Outcome {
  int code = -1;
  std::string out, err;
};

class CliTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "cliXXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    for (const char* name : {"LONGHAUL_COORDINATOR", "LONGHAUL_TOKEN_FILE"}) unsetenv(name);
    // No cluster of this machine is found here.
    setenv("XDG_RUNTIME_DIR", folder_.c_str(), 1);
    std::filesystem::create_directory(folder_ + "/corpus");
    Write("corpus/a.txt", std::string(2000, 'a'));
    Write("corpus/b.txt", std::string(3'000'000, 'b'));
    Write("corpus/c.txt", std::string(2000, 'a'));
    Write("run.yaml", kRunFile);
    Write("token", kToken);
    std::filesystem::permissions(folder_ + "/token", std::filesystem::perms(0600));
  }
  void TearDown() override {
    control_.Stop();
    std::filesystem::remove_all(folder_);
  }

  void Write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ + "/" + name) << text;
  }
  std::string Path(const std::string& name) const { return folder_ + "/" + name; }

  Outcome Run(std::vector<std::string> arguments, bool terminal = false) {
    std::ostringstream out, err;
    Terminal where{out, err};
    where.out_is_terminal = where.err_is_terminal = terminal;
    where.size = [] { return WindowSize{200, 50}; };
    arguments.insert(arguments.begin(), "longhaul");
    std::vector<const char*> argv;
    for (const std::string& argument : arguments) argv.push_back(argument.c_str());
    const int code = Program(where).Run(static_cast<int>(argv.size()), argv.data());
    return {code, out.str(), err.str()};
  }
  // With the coordinator of this test.
  Outcome Ask(std::vector<std::string> arguments, bool terminal = false) {
    if (control_.port() == 0) control_.Start();
    arguments.insert(arguments.end(), {"--coordinator", control_.address()});
    return Run(std::move(arguments), terminal);
  }

  static v1::RunStatus State(const std::string& state, uint64_t step) {
    v1::RunStatus run;
    run.set_run_id("tiny-abc123");
    run.set_name("tiny");
    run.set_state(state);
    run.set_step(step);
    run.set_steps(20);
    run.set_loss(2.5);
    return run;
  }

  std::string folder_;
  FakeControl control_;
};

TEST_F(CliTest, WrongUsageIsTwoAndHelpIsZero) {
  EXPECT_EQ(Run({}).code, 2);
  EXPECT_EQ(Run({"watch"}).code, 2);
  EXPECT_EQ(Run({"ps", "--no-such-flag"}).code, 2);
  EXPECT_EQ(Run({"stop", "a", "b"}).code, 2);
  EXPECT_EQ(Run({"--help"}).code, 0);
  EXPECT_EQ(Run({"submit", "--help"}).code, 0);
  EXPECT_THAT(Run({"submit", "--help"}).out, HasSubstr("--set"));
  EXPECT_EQ(Run({"--version"}).code, 0);
  EXPECT_THAT(Run({"--version"}).out, StartsWith("longhaul "));
  const Outcome typo = Run({"subimt", "run.yaml"});
  EXPECT_EQ(typo.code, 2);
  EXPECT_THAT(typo.err, HasSubstr("did you mean 'submit'?"));
}

TEST_F(CliTest, EveryCommandHasHelp) {
  for (const char* command : {"submit", "plan", "watch", "ps", "status", "stop", "steps", "logs",
                              "events", "workers", "cluster"}) {
    EXPECT_EQ(Run({command, "--help"}).code, 0) << command;
    EXPECT_THAT(Run({"--help"}).out, HasSubstr(command));
  }
}

TEST_F(CliTest, NoCoordinatorIsKnown) {
  const Outcome outcome = Run({"ps"});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("no coordinator is known"));
  EXPECT_THAT(outcome.err, HasSubstr("--coordinator HOST:PORT"));
  EXPECT_THAT(outcome.err, HasSubstr("longhaul cluster up"));
  const Outcome bad = Run({"ps", "--coordinator", "nonsense"});
  EXPECT_EQ(bad.code, 1);
  EXPECT_THAT(bad.err, StartsWith("--coordinator: "));
}

TEST_F(CliTest, TheCoordinatorIsAway) {
  control_.Start();
  const std::string address = control_.address();
  control_.Stop();
  setenv("LONGHAUL_COORDINATOR", address.c_str(), 1);
  const Outcome outcome = Run({"ps"});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, StartsWith("cannot reach the coordinator at " + address +
                                      " (from LONGHAUL_COORDINATOR): "));
  EXPECT_THAT(outcome.err, HasSubstr("Check that longhaul-coordinator runs there"));
}

TEST_F(CliTest, TokensByFlagAndVariable) {
  control_.token = kToken;
  const Outcome none = Ask({"ps"});
  EXPECT_EQ(none.code, 1);
  EXPECT_THAT(none.err, HasSubstr("refused a call without a token"));
  EXPECT_THAT(none.err, HasSubstr("--token-file"));
  EXPECT_EQ(Ask({"ps", "--token-file", Path("token")}).code, 0);
  setenv("LONGHAUL_TOKEN_FILE", Path("token").c_str(), 1);
  EXPECT_EQ(Ask({"ps"}).code, 0);
  Write("other", "ffffffffffffffffffffffffffffffff");
  const Outcome wrong = Ask({"ps", "--token-file", Path("other")});
  EXPECT_EQ(wrong.code, 1);
  EXPECT_THAT(wrong.err,
              HasSubstr("refused the token of " + Path("other") + " (from --token-file)"));
  const Outcome missing = Ask({"ps", "--token-file", Path("nowhere")});
  EXPECT_EQ(missing.code, 1);
  EXPECT_THAT(missing.err, HasSubstr(Path("nowhere")));
}

TEST_F(CliTest, SubmitChecksEverythingBeforeItDials) {
  Write("bad.yaml", "name: tiny\nmodel: { lyers: 2 }\ndata: { text: x }\ntrain: { steps: no }\n");
  const Outcome bad = Run({"submit", Path("bad.yaml"), "--coordinator", "127.0.0.1:1"});
  EXPECT_EQ(bad.code, 1);
  EXPECT_THAT(bad.err,
              HasSubstr(Path("bad.yaml") + ":2:10: unknown key 'lyers'; did you mean 'layers'?\n"));
  EXPECT_THAT(bad.err, HasSubstr(":4:17: train.steps: expected a whole number"));
  EXPECT_THAT(bad.err, Not(HasSubstr("cannot reach")));

  const Outcome data = Run({"submit", Path("run.yaml"), "--set", "data.text=[no*.txt, b/*]"});
  EXPECT_EQ(data.code, 1);
  EXPECT_THAT(data.err, HasSubstr("'no*.txt' matches no file"));
  EXPECT_THAT(data.err, HasSubstr("'b/*' matches no file"));

  const Outcome size = Run({"submit", Path("run.yaml"), "--set", "model.context=4000000"});
  EXPECT_EQ(size.code, 1);
  EXPECT_THAT(size.err, HasSubstr("tokens to train on"));
  EXPECT_THAT(size.err, HasSubstr("tokens for validation"));

  const Outcome codec = Run({"submit", Path("run.yaml"), "--set", "links.forward=zap"});
  EXPECT_EQ(codec.code, 1);
  EXPECT_THAT(codec.err, StartsWith("--set links.forward=zap: links.forward: "));

  const Outcome missing = Run({"submit", Path("nowhere.yaml")});
  EXPECT_EQ(missing.code, 1);
  EXPECT_THAT(missing.err, HasSubstr(Path("nowhere.yaml")));
}

TEST_F(CliTest, SubmitUploadsWhatIsMissingOnce) {
  control_.submit_reply.set_run_id("tiny-abc123");
  control_.submit_reply.add_notes("waiting for 2 more workers");
  const Outcome outcome = Ask({"submit", Path("run.yaml"), "--set", "train.steps=21"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "tiny-abc123\n");
  EXPECT_THAT(outcome.err, HasSubstr("waiting for 2 more workers"));
  // a.txt and c.txt are the same blob.
  const std::string a(2000, 'a'), b(3'000'000, 'b');
  EXPECT_EQ(control_.blobs,
            (std::map<std::string, std::string>{{Sha256Hex(a), a}, {Sha256Hex(b), b}}));
  ASSERT_EQ(control_.submitted.data_files_size(), 3);
  EXPECT_EQ(control_.submitted.data_files(1).name(), Path("corpus/b.txt"));
  EXPECT_EQ(control_.submitted.data_files(1).sha256(), Sha256Hex(b));
  EXPECT_EQ(control_.submitted.data_files(1).bytes(), b.size());
  EXPECT_EQ(control_.submitted.run_yaml(), kRunFile);
  EXPECT_THAT(control_.submitted.overrides(), ElementsAre("train.steps=21"));
  EXPECT_FALSE(control_.submitted.resume());

  const int chunks = control_.chunks;
  control_.submit_reply.set_resume_step(50);
  const Outcome again = Ask({"submit", "--resume", "--json", Path("run.yaml")});
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(control_.chunks, chunks);
  EXPECT_TRUE(control_.submitted.resume());
  const auto json = nlohmann::json::parse(again.out);
  EXPECT_EQ(json["run_id"], "tiny-abc123");
  EXPECT_EQ(json["resume_step"], 50);
}

TEST_F(CliTest, SubmitTellsWhatTheCoordinatorRefused) {
  control_.submit_status = {grpc::StatusCode::FAILED_PRECONDITION, "no unfinished run 'tiny'"};
  const Outcome outcome = Ask({"submit", Path("run.yaml"), "--resume"});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(outcome.err, "no unfinished run 'tiny'\n");
}

TEST_F(CliTest, SubmitWatchGivesTheRunsOutcome) {
  control_.submit_reply.set_run_id("tiny-abc123");
  control_.watched = {State("running", 19), State("done", 20)};
  const Outcome done = Ask({"submit", Path("run.yaml"), "--watch"});
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_THAT(done.out, StartsWith("tiny-abc123\n"));
  EXPECT_THAT(done.out, HasSubstr("done step 20/20"));

  control_.watched = {State("running", 3), State("failed", 3)};
  control_.watched[1].set_reason("worker2 vanished");
  const Outcome failed = Ask({"submit", Path("run.yaml"), "--watch"});
  EXPECT_EQ(failed.code, 1);
  EXPECT_THAT(failed.out, HasSubstr("failed step 3/20 loss 2.5: worker2 vanished"));
  EXPECT_THAT(failed.err, HasSubstr("tiny-abc123 failed at step 3/20."));
}

TEST_F(CliTest, WatchOnAPipeIsALineAStep) {
  control_.watched = {State("queued", 0), State("running", 1), State("running", 1),
                      State("running", 2), State("done", 2)};
  const Outcome outcome = Ask({"watch", "tiny"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(std::count(outcome.out.begin(), outcome.out.end(), '\n'), 4);
  EXPECT_THAT(outcome.out, Not(HasSubstr("\033")));
  const Outcome json = Ask({"watch", "tiny", "--json"});
  std::istringstream lines(json.out);
  std::vector<std::string> states;
  for (std::string line; std::getline(lines, line);) {
    states.push_back(nlohmann::json::parse(line)["state"]);
  }
  EXPECT_THAT(states, ElementsAre("queued", "running", "running", "running", "done"));
}

TEST_F(CliTest, WatchOnATerminalRedrawsInPlace) {
  control_.watched = {State("running", 1), State("done", 20)};
  const Outcome outcome = Ask({"watch", "tiny"}, /*terminal=*/true);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("step 1/20"));
  // Three lines up, then everything below is wiped.
  EXPECT_THAT(outcome.out, HasSubstr("\033[3A\r\033[J"));
  EXPECT_THAT(outcome.out, HasSubstr("step 20/20  100%"));
}

TEST_F(CliTest, WatchWaitsForACoordinatorThatComesBack) {
  control_.cut_first_watch = true;
  control_.watched = {State("running", 1)};
  control_.watched_later = {State("done", 20)};
  const Outcome outcome = Ask({"watch", "tiny"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("is away; the workers train on"));
  // By the id that the first stream told.
  EXPECT_THAT(control_.watch_requests, ElementsAre("tiny", "tiny-abc123"));
}

TEST_F(CliTest, WatchOfAnUnknownRunDoesNotTryAgain) {
  control_.Start();
  control_.Stop();
  const Outcome outcome = Run({"watch", "tiny", "--coordinator", control_.address()});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, StartsWith("cannot reach"));
}

TEST_F(CliTest, PsForPeoplePipesAndMachines) {
  EXPECT_THAT(Ask({"ps"}, true).out, HasSubstr("No runs yet"));
  control_.runs = {State("running", 7), State("done", 20)};
  control_.runs[1].set_run_id("older-1");
  const Outcome people = Ask({"ps"}, true);
  EXPECT_THAT(people.out, HasSubstr("RUN          STATE"));
  EXPECT_THAT(people.out, HasSubstr("7/20"));
  const Outcome pipe = Ask({"ps"});
  EXPECT_THAT(pipe.out, HasSubstr("\ntiny-abc123\trunning\t7/20\t2.5\t"));
  const auto json = nlohmann::json::parse(Ask({"ps", "--json"}).out);
  EXPECT_EQ(json["runs"][1]["run_id"], "older-1");
}

TEST_F(CliTest, StatusTellsWhyAndWhatToDo) {
  control_.runs = {State("failed", 7)};
  control_.runs[0].set_reason("worker2 (stage 1) vanished");
  control_.runs[0].set_checkpoint_step(5);
  control_.runs[0].add_stages()->set_worker_name("worker\033[2J");
  const Outcome outcome = Ask({"status", "tiny-abc123"}, true);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("reason        worker2 (stage 1) vanished\n"));
  EXPECT_THAT(outcome.out, HasSubstr("what to do    `longhaul events tiny-abc123`"));
  EXPECT_THAT(outcome.out, HasSubstr("worker?[2J"));
  EXPECT_EQ(nlohmann::json::parse(Ask({"status", "tiny-abc123", "--json"}).out)["step"], 7);
  const Outcome unknown = Ask({"status", "zzz"});
  EXPECT_EQ(unknown.code, 1);
  EXPECT_EQ(unknown.err, "there is no run 'zzz'\n");
}

TEST_F(CliTest, Stop) {
  EXPECT_EQ(Ask({"stop", "a"}).out, "a stops after its step\n");
  EXPECT_EQ(Ask({"stop", "a", "--now"}).out, "a stops now\n");
  EXPECT_EQ(nlohmann::json::parse(Ask({"stop", "a", "--json"}).out)["message"],
            "a stops after its step");
}

TEST_F(CliTest, StepsKeepEveryBitOfTheLosses) {
  std::vector<double> losses = {1.0 / 3, 0.1 + 0.2, 5e-324};
  for (size_t i = 0; i < losses.size(); ++i) {
    v1::StepRecord step;
    step.set_step(i + 1);
    step.set_loss(losses[i]);
    control_.steps.push_back(step);
  }
  std::istringstream lines(Ask({"steps", "a", "--json"}).out);
  std::istringstream rows(Ask({"steps", "a"}).out);
  std::string line, row, cell;
  std::getline(rows, row);
  EXPECT_THAT(row, StartsWith("STEP\tEPOCH\tLOSS\t"));
  for (const double loss : losses) {
    ASSERT_TRUE(std::getline(lines, line) && std::getline(rows, row));
    EXPECT_EQ(nlohmann::json::parse(line)["loss"].get<double>(), loss);
    std::istringstream cells(row);
    for (int i = 0; i < 3; ++i) std::getline(cells, cell, '\t');
    EXPECT_EQ(std::strtod(cell.c_str(), nullptr), loss);
  }
  EXPECT_THAT(Ask({"steps", "a", "--after", "2", "--json"}).out, StartsWith("{\"step\":3,"));
}

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

TEST_F(CliTest, Workers) {
  EXPECT_THAT(Ask({"workers"}, true).out, HasSubstr("longhaul-worker --coordinator 127.0.0.1:"));
  v1::WorkerStatus worker;
  worker.set_name("worker1");
  worker.set_connected(true);
  worker.add_data_addresses("10.77.0.11:4000");
  v1::Device* device = worker.add_devices();
  device->set_kind("cpu");
  device->set_cores(4);
  device->set_memory_bytes(8'000'000'000);
  worker.set_memory_used_bytes(500'000'000);
  worker.set_version("0.1.0");
  worker.set_last_heartbeat_seconds(0.5);
  control_.workers = {worker};
  EXPECT_THAT(Ask({"workers"}).out,
              HasSubstr("\nworker1\tfree\t-\t-\t10.77.0.11:4000\tcpu x4\t500 MB of 8 GB\t-\t0.1.0\t"
                        "500 ms ago\n"));
  EXPECT_EQ(nlohmann::json::parse(Ask({"workers", "--json"}).out)["workers"][0]["name"], "worker1");
}

TEST_F(CliTest, Plan) {
  v1::StagePlan* stage = control_.plan.add_stages();
  stage->set_worker_name("worker1");
  stage->set_layers(2);
  stage->set_forward_seconds(0.004);
  v1::LinkPlan* link = control_.plan.add_links();
  link->set_forward_codec("none");
  link->set_forward_bytes(36'100);
  control_.plan.mutable_prediction()->set_step_seconds(2);
  control_.plan.mutable_prediction()->set_bottleneck("egress of stage 1");
  control_.plan.set_explanation("A paragraph.");
  const Outcome outcome = Ask({"plan", Path("run.yaml")});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("0\tworker1\t0-1\t"));
  EXPECT_THAT(outcome.out, HasSubstr("\tnone\t36.1 KB\t"));
  // 4 microbatches x 8 tokens in 2 s.
  EXPECT_THAT(outcome.out, HasSubstr("predicted step: 2 s (16 tokens/s)"));
  EXPECT_THAT(outcome.out, HasSubstr("what bounds it: egress of stage 1\nA paragraph.\n"));
  EXPECT_EQ(nlohmann::json::parse(Ask({"plan", Path("run.yaml"), "--json"}).out)["stages"].size(),
            1u);
}

TEST_F(CliTest, ShowConfigNeedsNoCoordinatorAndNoData) {
  const Outcome outcome = Run({"plan", "--show-config", Path("run.yaml"), "--set", "data.text=none",
                               "--set", "train.steps=33"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("  steps: 33\n"));
  EXPECT_THAT(outcome.out, HasSubstr("peer_timeout: 10s\n"));
  Write("full.yaml", outcome.out);
  EXPECT_EQ(Run({"plan", "--show-config", Path("full.yaml")}).out, outcome.out);
}

// The program in a process of its own, its standard output on a pipe.
class Child {
 public:
  explicit Child(std::vector<std::string> arguments) {
    std::array<int, 2> out{}, err{};
    if (pipe2(out.data(), O_CLOEXEC) != 0 || pipe2(err.data(), O_CLOEXEC) != 0) std::abort();
    std::vector<char*> argv{const_cast<char*>(LONGHAUL_PROGRAM)};
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    pid_ = fork();
    if (pid_ == 0) {
      sigset_t none;
      sigemptyset(&none);
      sigprocmask(SIG_SETMASK, &none, nullptr);
      dup2(out[1], STDOUT_FILENO);
      dup2(err[1], STDERR_FILENO);
      execv(argv[0], argv.data());
      _exit(127);
    }
    close(out[1]);
    close(err[1]);
    out_ = out[0];
    err_ = err[0];
  }
  ~Child() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    close(out_);
    close(err_);
  }
  void Signal(int signal) const { kill(pid_, signal); }
  // Up to the first line's end; what there is at the deadline.
  std::string ReadLine() const { return Read(out_, true); }
  std::string Errors() const { return Read(err_, false); }
  // After its output has ended.
  int ExitCode() {
    (void)Read(out_, false);
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

 private:
  static std::string Read(int fd, bool line) {
    const Deadline deadline = Deadline::After(absl::Seconds(20));
    std::string text;
    char c = 0;
    while (!deadline.Expired()) {
      pollfd wait{fd, POLLIN, 0};
      const int left = static_cast<int>(absl::ToInt64Milliseconds(deadline.Remaining()));
      if (poll(&wait, 1, left) <= 0 || read(fd, &c, 1) != 1) break;
      text.push_back(c);
      if (line && c == '\n') break;
    }
    return text;
  }
  pid_t pid_ = -1;
  int out_ = -1, err_ = -1;
};

TEST_F(CliTest, CtrlCLeavesTheRunRunningAndSaysSo) {
  control_.watched = {State("running", 1)};
  control_.hold_watch = true;
  control_.Start();
  Child child({"watch", "tiny", "--coordinator", control_.address()});
  EXPECT_THAT(child.ReadLine(), HasSubstr("running step 1/20"));
  child.Signal(SIGINT);
  EXPECT_EQ(child.ExitCode(), 130);
  EXPECT_THAT(
      child.Errors(),
      HasSubstr("Interrupted; tiny-abc123 goes on without you. `longhaul watch tiny-abc123` "
                "shows it again"));
}

TEST_F(CliTest, CtrlCEndsACallThatGetsNoAnswer) {
  // A listener that never accepts: the connection stands, gRPC's greeting never comes.
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(listen(listener, 1), 0);
  socklen_t length = sizeof address;
  getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length);
  Child child({"ps", "--coordinator", "127.0.0.1:" + std::to_string(ntohs(address.sin_port))});
  // It has dialled, so it is past the start and its signals are taken care of.
  pollfd wait{listener, POLLIN, 0};
  ASSERT_EQ(poll(&wait, 1, 20'000), 1);
  child.Signal(SIGINT);
  EXPECT_EQ(child.ExitCode(), 130);
  EXPECT_EQ(child.Errors(), "interrupted\n");
  close(listener);
}

}  // namespace
}  // namespace longhaul::cli
