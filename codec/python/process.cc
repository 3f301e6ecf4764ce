#include "codec/python/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/printable.h"
#include "base/spawn.h"

namespace longhaul::codec::python {
namespace {

// Both little-endian, without padding (main.py has the same formats).
struct RequestHeader {
  uint32_t what = 0;
  uint32_t samples = 0, tokens = 0, channels = 0;
  uint64_t bytes = 0;  // that follow
  uint64_t seed = 0, step = 0, edge = 0, microbatch = 0;
  uint32_t replica = 0;
  uint32_t backward = 0;  // 1: gradients
};
static_assert(sizeof(RequestHeader) == 64);

enum class Answer : uint32_t { kGood = 0, kRaised = 1 };
struct AnswerHeader {
  uint32_t kind = 0;
  uint32_t zero = 0;
  uint64_t bytes = 0;  // that follow
};
static_assert(sizeof(AnswerHeader) == 16);

// The longest sentence in an answer.
constexpr size_t kLongestSentence = 2000;
// How long a process that has closed its socket may take to end.
constexpr absl::Duration kEndLimit = absl::Seconds(2);

template <class T>
std::span<std::byte> BytesOf(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

// Waits for the end of a process. False: it had not ended at the deadline.
bool AwaitEnd(pid_t pid, Deadline deadline, int* status) {
  while (true) {
    const pid_t got = waitpid(pid, status, WNOHANG);
    if (got == pid || (got < 0 && errno != EINTR)) return got == pid;
    if (deadline.Expired()) return false;
    poll(nullptr, 0, 5);
  }
}

}  // namespace

StatusOr<std::unique_ptr<Process>> Process::Start(ProcessOptions options) {
  std::unique_ptr<Process> process(new Process(std::move(options)));
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return FromErrno("socketpair", errno);
  }
  process->socket_ = UniqueFd(ends[0]);
  const UniqueFd other(ends[1]);
  // The socket is its standard input. What the class prints must not be lost.
  StatusOr<pid_t> pid =
      Spawn(process->options_.command, other.get(), STDERR_FILENO, ChildGroup::kOwn);
  LH_RETURN_IF_ERROR(Annotate(pid.status(), process->options_.name));
  process->pid_ = *pid;
  const Deadline deadline = Deadline::After(process->options_.start_limit);
  const std::lock_guard lock(process->mutex_);
  size_t none = 0;
  LH_RETURN_IF_ERROR(process->ReadAnswer(What::kEncode, deadline, {}, &none));
  return process;
}

Process::~Process() {
  if (pid_ < 0) return;
  kill(pid_, SIGKILL);
  int ignored = 0;
  while (waitpid(pid_, &ignored, 0) < 0 && errno == EINTR) {
  }
}

Status Process::Encode(std::span<const float> elements, const Shape& shape, const Context& context,
                       std::span<std::byte> body, size_t* bytes) {
  return Call(What::kEncode, shape, context, std::as_bytes(elements), body, bytes);
}

Status Process::Decode(std::span<const std::byte> body, const Shape& shape, const Context& context,
                       std::span<float> elements) {
  const std::span<std::byte> out = std::as_writable_bytes(elements);
  size_t bytes = 0;
  LH_RETURN_IF_ERROR(Call(What::kDecode, shape, context, body, out, &bytes));
  if (bytes == out.size()) return absl::OkStatus();
  return InvalidArgument("{}: expected {} bytes of elements from decode, got {}", options_.name,
                         out.size(), bytes);
}

Status Process::Call(What what, const Shape& shape, const Context& context,
                     std::span<const std::byte> in, std::span<std::byte> out, size_t* bytes) {
  const std::lock_guard lock(mutex_);
  LH_RETURN_IF_ERROR(ended_);
  RequestHeader request{.what = static_cast<uint32_t>(what),
                        .samples = shape.samples,
                        .tokens = shape.tokens,
                        .channels = shape.channels,
                        .bytes = in.size(),
                        .seed = context.seed,
                        .step = context.step.value(),
                        .edge = context.edge.value(),
                        .microbatch = context.microbatch.value(),
                        .replica = context.replica,
                        .backward = context.direction == Direction::kBackward ? 1u : 0u};
  const Deadline deadline = Deadline::After(options_.call_limit);
  LH_RETURN_IF_ERROR(Send(BytesOf(request), deadline));
  LH_RETURN_IF_ERROR(Send(in, deadline));
  return ReadAnswer(what, deadline, out, bytes);
}

Status Process::ReadAnswer(What what, Deadline deadline, std::span<std::byte> out, size_t* bytes) {
  AnswerHeader answer;
  LH_RETURN_IF_ERROR(Receive(BytesOf(answer), deadline));
  if (answer.kind == static_cast<uint32_t>(Answer::kGood)) {
    if (answer.bytes <= out.size()) {
      *bytes = answer.bytes;
      return Receive(out.first(answer.bytes), deadline);
    }
    // It would have to be read before the next answer.
    return End(FailedPrecondition(
        "{}: {} returned {} bytes, and at most {} are allowed; name more bits in the codec string",
        options_.name, what == What::kEncode ? "encode" : "decode", answer.bytes, out.size()));
  }
  std::string sentence(std::min<uint64_t>(answer.bytes, kLongestSentence), '\0');
  LH_RETURN_IF_ERROR(Receive(std::as_writable_bytes(std::span(sentence)), deadline));
  sentence = fmt::format("{}: {}", options_.name, Printable(sentence));
  if (answer.kind != static_cast<uint32_t>(Answer::kRaised) || answer.bytes > kLongestSentence) {
    return End(FailedPrecondition("{}: an answer that is none came", options_.name));
  }
  if (what == What::kDecode) return absl::InvalidArgumentError(sentence);
  return absl::FailedPreconditionError(sentence);
}

Status Process::Send(std::span<const std::byte> bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const ssize_t sent =
        send(socket_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent >= 0) {
      bytes = bytes.subspan(static_cast<size_t>(sent));
    } else if (errno == EAGAIN) {
      LH_RETURN_IF_ERROR(Wait(POLLOUT, deadline));
    } else if (errno != EINTR) {
      return Died();
    }
  }
  return absl::OkStatus();
}

Status Process::Receive(std::span<std::byte> bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const ssize_t got = recv(socket_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (got > 0) {
      bytes = bytes.subspan(static_cast<size_t>(got));
    } else if (got < 0 && errno == EAGAIN) {
      LH_RETURN_IF_ERROR(Wait(POLLIN, deadline));
    } else if (got == 0 || errno != EINTR) {
      return Died();
    }
  }
  return absl::OkStatus();
}

Status Process::Wait(int16_t events, Deadline deadline) {
  pollfd one{socket_.get(), events, 0};
  const int64_t left = absl::ToInt64Milliseconds(deadline.Remaining());
  const int ready = poll(&one, 1, static_cast<int>(std::min<int64_t>(left, 60'000)));
  if (ready != 0 || !deadline.Expired()) return absl::OkStatus();
  return End(FailedPrecondition("{}: its process {} took longer than {}, and was ended",
                                options_.name, pid_, absl::FormatDuration(options_.call_limit)));
}

Status Process::End(Status why) {
  ended_ = std::move(why);
  kill(pid_, SIGKILL);
  return ended_;
}

Status Process::Died() {
  int status = 0;
  const pid_t pid = pid_;
  std::string how = "closed its socket";
  if (AwaitEnd(pid, Deadline::After(kEndLimit), &status)) {
    pid_ = -1;
    how = WIFSIGNALED(status) ? fmt::format("was killed by signal {}", WTERMSIG(status))
                              : fmt::format("ended with code {}", WEXITSTATUS(status));
  }
  ended_ = FailedPrecondition("{}: its process {} {}; standard error of this program has its words",
                              options_.name, pid, how);
  if (pid_ >= 0) kill(pid_, SIGKILL);
  return ended_;
}

}  // namespace longhaul::codec::python
