#include "coordinator/hooks/program.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "base/unique_fd.h"
#include "coordinator/hooks/guard.h"

namespace longhaul::coordinator {
namespace {

// Between two looks whether somebody has given up, or the program has ended with its output open.
constexpr int kLookMs = 50;
constexpr size_t kPieceBytes = 16 << 10;

struct Pipe {
  UniqueFd read, write;
};

StatusOr<Pipe> MakePipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return FromErrno("pipe", errno);
  return Pipe{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

std::vector<char*> PointersTo(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  pointers.reserve(texts.size() + 1);
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// The paths to try, in their order: found before fork, because other threads may hold locks.
std::vector<std::string> PathsOf(const Program& program) {
  const std::string& name = program.arguments[0];
  if (name.find('/') != std::string::npos) return {name};
  std::string folders = "/usr/local/bin:/usr/bin:/bin";
  for (const std::string& variable : program.environment) {
    if (variable.starts_with("PATH=")) folders = variable.substr(5);
  }
  std::vector<std::string> paths;
  for (size_t begin = 0; begin <= folders.size();) {
    const size_t end = std::min(folders.find(':', begin), folders.size());
    if (end > begin) paths.push_back(folders.substr(begin, end - begin) + "/" + name);
    begin = end + 1;
  }
  return paths;
}

// The end of a text to which more is added.
class Tail {
 public:
  explicit Tail(size_t limit) : limit_(limit) {}
  void Add(std::string_view piece) {
    text_ += piece;
    if (text_.size() > 2 * limit_) text_.erase(0, text_.size() - limit_);
  }
  std::string Take() {
    if (text_.size() > limit_) text_.erase(0, text_.size() - limit_);
    return std::move(text_);
  }

 private:
  const size_t limit_;
  std::string text_;
};

// A program under its guard.
class Child {
 public:
  Child(pid_t guard, UniqueFd output, UniqueFd words, size_t output_limit)
      : guard_(guard), output_(std::move(output)), words_(std::move(words)), tail_(output_limit) {}
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() { End(); }

  // Reads output until the guard has ended. False: `stop` has returned true.
  bool WaitFor(const std::function<bool()>& stop) {
    while (!stop()) {
      ReadSome(kLookMs);
      const pid_t ended = waitpid(guard_, nullptr, WNOHANG);
      if (ended != guard_) continue;
      guard_ = -1;
      return true;
    }
    return false;
  }

  // Has the guard kill everything, and waits for its end, which takes 2 s at most.
  void End() {
    if (guard_ < 0) return;
    kill(guard_, kGuardEnds);
    while (waitpid(guard_, nullptr, 0) < 0 && errno == EINTR) {
    }
    guard_ = -1;
  }

  // The first word. nullopt: the guard was killed by somebody. Only after its end.
  std::optional<GuardWord> Word() {
    GuardWord word;
    ssize_t got = 0;
    while ((got = ::read(words_.get(), &word, sizeof word)) < 0 && errno == EINTR) {
    }
    if (got != sizeof word) return std::nullopt;
    return word;
  }

  // What has come until now.
  std::string TakeOutput() {
    while (ReadSome(0)) {
    }
    return tail_.Take();
  }

 private:
  // False: nothing came.
  bool ReadSome(int wait_ms) {
    pollfd wait{output_.get(), POLLIN, 0};
    if (is_open_ && poll(&wait, 1, wait_ms) <= 0) return false;
    char piece[kPieceBytes];
    const ssize_t got = is_open_ ? ::read(output_.get(), piece, sizeof piece) : 0;
    if (got > 0) {
      tail_.Add({piece, static_cast<size_t>(got)});
      return true;
    }
    is_open_ = is_open_ && got < 0 && errno == EINTR;
    if (wait_ms > 0) absl::SleepFor(absl::Milliseconds(wait_ms));
    return false;
  }

  pid_t guard_;
  UniqueFd output_, words_;
  bool is_open_ = true;
  Tail tail_;
};

StatusOr<std::unique_ptr<Child>> Start(const Program& program) {
  LH_ASSIGN_OR_RETURN(Pipe output, MakePipe());
  LH_ASSIGN_OR_RETURN(Pipe words, MakePipe());
  const std::vector<std::string> paths = PathsOf(program);
  const Guarded guarded{.paths = PointersTo(paths),
                        .arguments = PointersTo(program.arguments),
                        .environment = PointersTo(program.environment),
                        .folder = program.folder.c_str(),
                        .parent = getpid(),
                        .output = output.write.get(),
                        .words = words.write.get()};
  const pid_t guard = fork();
  if (guard < 0) return FromErrno("fork", errno);
  if (guard == 0) BecomeGuard(guarded);
  return std::make_unique<Child>(guard, std::move(output.read), std::move(words.read),
                                 program.output_limit);
}

std::string HowItEnded(int status) {
  if (WIFEXITED(status)) return fmt::format("ended with exit code {}", WEXITSTATUS(status));
  return fmt::format("was ended by signal {} ({})", WTERMSIG(status),
                     sigdescr_np(WTERMSIG(status)) ? sigdescr_np(WTERMSIG(status)) : "unknown");
}

}  // namespace

ProgramEnd RunProgram(const Program& program, const std::function<bool()>& given_up) {
  const auto unstarted = [](const Status& why) {
    return ProgramEnd{.how = fmt::format("could not start: {}", Message(why))};
  };
  StatusOr<std::unique_ptr<Child>> child = Start(program);
  if (!child.ok()) return unstarted(child.status());
  const Deadline deadline = Deadline::After(program.limit);
  const bool has_ended = (*child)->WaitFor([&] { return deadline.Expired() || given_up(); });
  (*child)->End();
  const std::optional<GuardWord> word = (*child)->Word();
  if (word && word->kind == GuardWord::Kind::kNoFolder) {
    return unstarted(FromErrno(program.folder, word->value));
  }
  if (word && word->kind == GuardWord::Kind::kNoProgram) {
    return unstarted(FromErrno(program.arguments[0], word->value));
  }
  ProgramEnd end{.output = (*child)->TakeOutput()};
  if (!has_ended) {
    end.how = deadline.Expired() ? fmt::format("took longer than {} and was killed",
                                               absl::FormatDuration(program.limit))
                                 : "was killed";
  } else if (!word) {
    end.how = "ended with its guard, which somebody killed";
  } else {
    end.ok = WIFEXITED(word->value) && WEXITSTATUS(word->value) == 0;
    end.how = HowItEnded(word->value);
  }
  return end;
}

std::vector<std::string> SmallEnvironment(std::vector<std::string> more) {
  for (const char* name : {"PATH", "HOME", "LANG", "LC_ALL"}) {
    if (const char* value = std::getenv(name)) more.push_back(fmt::format("{}={}", name, value));
  }
  return more;
}

}  // namespace longhaul::coordinator
