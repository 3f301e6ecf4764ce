#include "deploy/steps/step_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <utility>
#include <vector>

#include "base/spawn.h"
#include "base/unique_fd.h"

namespace longhaul::cli {
namespace {

// Between two looks whether the user has interrupted.
constexpr int kLookMs = 100;
// Answers of the child, one a line: a word, a space and a text (longhaul_steps/answers.py).
constexpr std::string_view kAt = "at ";          // where people find the run
constexpr std::string_view kReady = "ready ";    // all trackers are open
constexpr std::string_view kError = "error ";    // the last answer
constexpr std::string_view kLogged = "logged ";  // what a tracker has got, after the end of input

struct Pipe {
  UniqueFd read, write;
};

StatusOr<Pipe> MakePipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return FromErrno("pipe", errno);
  return Pipe{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

class PythonStepLog : public StepLog {
 public:
  PythonStepLog(pid_t pid, UniqueFd lines, UniqueFd answers, Interrupt& interrupt)
      : pid_(pid), lines_(std::move(lines)), answers_(std::move(answers)), interrupt_(interrupt) {}
  ~PythonStepLog() override {
    lines_.Reset();
    if (pid_ > 0) waitpid(pid_, nullptr, WNOHANG);
  }

  // Waits for the trackers. Returns the child's answers `at`, in lines.
  StatusOr<std::string> AwaitReady() {
    std::string where;
    while (true) {
      LH_ASSIGN_OR_RETURN(const std::optional<std::string> answer, Answer(/*patient=*/false));
      if (!answer) return Ended();
      if (answer->starts_with(kReady)) return where;
      if (answer->starts_with(kAt)) where += answer->substr(kAt.size()) + "\n";
    }
  }

  Status Write(std::string_view line) override {
    std::string text(line);
    text += '\n';
    for (std::string_view left = text; !left.empty();) {
      const ssize_t wrote = write(lines_.get(), left.data(), left.size());
      if (wrote >= 0) {
        left.remove_prefix(static_cast<size_t>(wrote));
        continue;
      }
      if (errno == EPIPE) return LastWord();
      if (errno != EAGAIN && errno != EINTR) return FromErrno("writing to the log", errno);
      // The trackers are slow.
      if (interrupt_.fired()) return absl::CancelledError("interrupted");
      pollfd wait{lines_.get(), POLLOUT, 0};
      poll(&wait, 1, kLookMs);
    }
    return absl::OkStatus();
  }

  StatusOr<std::string> Close() override {
    lines_.Reset();
    std::string text;
    while (true) {
      LH_ASSIGN_OR_RETURN(const std::optional<std::string> answer, Answer(/*patient=*/true));
      if (!answer) break;
      if (answer->starts_with(kLogged)) text += answer->substr(kLogged.size()) + "\n";
    }
    if (Reap() != 0 || text.empty()) return Ended();
    return text;
  }

 private:
  // The child's next answer; nullopt: there are no more. Not `patient`: kCancelled after an
  // interrupt. An answer `error` is returned as that.
  StatusOr<std::optional<std::string>> Answer(bool patient) {
    while (true) {
      if (const size_t end = text_.find('\n'); end != std::string::npos) {
        std::string line = text_.substr(0, end);
        text_.erase(0, end + 1);
        if (line.starts_with(kError)) return FailedPrecondition("{}", line.substr(kError.size()));
        return line;
      }
      if (!patient && interrupt_.fired()) return absl::CancelledError("interrupted");
      pollfd wait{answers_.get(), POLLIN, 0};
      if (poll(&wait, 1, kLookMs) <= 0) continue;
      char buffer[4096];
      const ssize_t got = read(answers_.get(), buffer, sizeof buffer);
      if (got == 0) return std::nullopt;
      if (got > 0) text_.append(buffer, static_cast<size_t>(got));
      if (got < 0 && errno != EINTR) return FromErrno("reading from the log", errno);
    }
  }

  // The child takes no more lines: why.
  Status LastWord() {
    lines_.Reset();
    while (true) {
      LH_ASSIGN_OR_RETURN(const std::optional<std::string> answer, Answer(/*patient=*/true));
      if (!answer) return Ended();
    }
  }

  // Waits for the child's end. Its exit code; 128 and more: a signal.
  int Reap() {
    if (pid_ > 0) {
      int status = 0;
      while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
      }
      pid_ = -1;
      code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    return code_;
  }

  Status Ended() {
    return FailedPrecondition(
        "expected the Python program that logs steps to go on, it ended with exit code {} and no "
        "reason; the run is not touched, and the same command again continues the log",
        Reap());
  }

  pid_t pid_;  // -1: reaped
  int code_ = 0;
  UniqueFd lines_, answers_;
  Interrupt& interrupt_;
  std::string text_;  // came from the child, and is no whole line yet
};

}  // namespace

PythonPart StepsPart(const StepLogTargets& targets) {
  std::vector<std::string> packages;
  if (!targets.wandb.empty()) packages.emplace_back("wandb");
  if (!targets.mlflow.empty()) packages.emplace_back("mlflow");
  // Looks for the packages without importing them, which takes seconds. What it prints begins with
  // a line feed: its last line is the reason.
  return {
      .name = "steps",
      .needs = fmt::format("{}", fmt::join(packages, " and ")),
      .check = fmt::format(
          "import importlib.util as u; lacks = [m for m in '{}'.split() if not u.find_spec(m)]; "
          "lacks and sys.exit(', '.join(f'no module named {{m}}' for m in lacks))",
          fmt::join(packages, " ")),
      .packages = "--log"};
}

StatusOr<std::unique_ptr<StepLog>> StartPythonStepLog(const StepLogTargets& targets,
                                                      const std::string& run_line,
                                                      Interrupt& interrupt, std::string* where) {
  LH_ASSIGN_OR_RETURN(const PythonProgram program, FindPythonProgram(StepsPart(targets)));
  std::vector<std::string> words = {program.python, "-B", program.main.string()};
  // In one word each: a value may begin with a dash.
  if (!targets.wandb.empty()) words.push_back("--wandb=" + targets.wandb);
  if (!targets.mlflow.empty()) words.push_back("--mlflow=" + targets.mlflow);
  LH_ASSIGN_OR_RETURN(Pipe lines, MakePipe());
  LH_ASSIGN_OR_RETURN(Pipe answers, MakePipe());
  LH_ASSIGN_OR_RETURN(const pid_t pid, Spawn(std::move(words), lines.read.get(),
                                             answers.write.get(), ChildGroup::kOwn));
  lines.read.Reset();
  answers.write.Reset();
  // A tracker that is slow must not keep Ctrl-C from working.
  fcntl(lines.write.get(), F_SETFL, O_NONBLOCK);
  auto log = std::make_unique<PythonStepLog>(pid, std::move(lines.write), std::move(answers.read),
                                             interrupt);
  LH_RETURN_IF_ERROR(log->Write(run_line));
  StatusOr<std::string> ready = log->AwaitReady();
  // Nothing is logged yet: the child need not go on to open trackers.
  if (absl::IsCancelled(ready.status())) kill(-pid, SIGTERM);
  LH_ASSIGN_OR_RETURN(*where, std::move(ready));
  return log;
}

}  // namespace longhaul::cli
