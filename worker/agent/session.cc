#include "worker/agent/session.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/log.h"
#include "base/peer_log.h"
#include "proto/rpc/status.h"

namespace longhaul::worker {
namespace {

constexpr absl::Duration kFirstBackOff = absl::Milliseconds(200);
constexpr absl::Duration kLongestBackOff = absl::Seconds(5);
// Short, because a standby may be about to take over.
constexpr absl::Duration kLongestBackOffOfSeveral = absl::Seconds(1);

}  // namespace

uint64_t MemoryUsed() {
  unsigned long pages = 0;
  unsigned long resident = 0;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen("/proc/self/statm", "r"),
                                                       &std::fclose);
  if (!file || std::fscanf(file.get(), "%lu %lu", &pages, &resident) != 2) return 0;
  return uint64_t{resident} * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

Session::Session(SessionOptions options)
    : options_(std::move(options)), stub_(options_.access), thread_([this] { Loop(); }) {}

Session::~Session() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
    if (context_ != nullptr) context_->TryCancel();
  }
  changed_.notify_all();
  thread_.join();
}

void Session::Send(v1::WorkerMessage message) {
  {
    const std::lock_guard lock(mutex_);
    outbox_.Push(std::move(message));
  }
  changed_.notify_all();
}

void Session::AwaitSent(absl::Duration limit) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, absl::ToChronoNanoseconds(limit), [this] {
    return closing_ || context_ == nullptr || stream_ended_ || !welcomed_ ||
           outbox_.Next() == nullptr;
  });
}

Status Session::fatal() const {
  const std::lock_guard lock(mutex_);
  return fatal_;
}

bool Session::Sleep(absl::Duration duration) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, absl::ToChronoNanoseconds(duration), [this] { return closing_; });
  return !closing_;
}

void Session::Loop() {
  const absl::Duration longest =
      options_.access->alone() ? kLongestBackOff : kLongestBackOffOfSeveral;
  absl::Duration back_off = kFirstBackOff;
  // Since the last pause.
  size_t tried = 0;
  bool welcomed = false;
  while (true) {
    const Ending ending = Connect();
    {
      const std::lock_guard lock(mutex_);
      if (!fatal_.ok() || closing_) return;
    }
    welcomed |= ending.welcomed;
    // Every coordinator is tried before a pause. One that serves, and merely refused this
    // connection, is dialled again after the pause.
    if (!ending.serves && ++tried < options_.access->count()) continue;
    back_off = welcomed ? kFirstBackOff : std::min(2 * back_off, longest);
    tried = 0;
    welcomed = false;
    if (!Sleep(back_off)) return;
  }
}

Session::Ending Session::Connect() {
  grpc::ClientContext context;
  options_.access->Prepare(&context);
  out_of_place_.clear();
  {
    const std::lock_guard lock(mutex_);
    if (closing_) return {};
    context_ = &context;
    stream_ended_ = false;
    moved_ = false;
    welcomed_ = false;
    rejected_ = false;
    outbox_.BeginSession();
  }
  const auto stub = stub_.Get();
  const auto stream = stub->Session(&context);
  const std::string address = stub_.address();
  // With a single coordinator the call has waited for a connection. An unreachable one of several
  // gets no hello: making it looks up names, which may take long.
  const bool reached = options_.access->alone() || !stub_.unreachable();
  v1::WorkerMessage hello;
  if (reached) {
    *hello.mutable_hello() = options_.hello();
    hello.mutable_hello()->set_term(term_);
  }
  if (reached && stream->Write(hello)) {
    // gRPC allows one read and one write at a time, so writing has a thread of its own.
    std::thread writer([this, &stream] { WriteLoop(stream.get()); });
    v1::WorkerCommand command;
    bool noted = false;
    while (stream->Read(&command)) {
      if (!std::exchange(noted, true)) options_.access->NoteAuthority(context);
      if (!HandleCommand(std::move(command))) {
        // Cancelled only here: after the coordinator has ended the stream, cancelling could hide
        // its reason.
        context.TryCancel();
        break;
      }
      command.Clear();
    }
    {
      const std::lock_guard lock(mutex_);
      stream_ended_ = true;
    }
    changed_.notify_all();
    writer.join();
  }
  const Status status = FromGrpc(stream->Finish());
  Ending ending;
  std::string news;
  {
    const std::lock_guard lock(mutex_);
    context_ = nullptr;
    if (closing_) return {};
    if (moved_) stub_.Drop();  // its connection has an address that is gone
    // An old coordinator that is back may refuse this worker, which belongs to its successor by
    // now. Only the coordinator that was obeyed can end the worker.
    const bool believed = obeyed_.empty() || obeyed_ == address;
    if (believed && (absl::IsUnauthenticated(status) || absl::IsPermissionDenied(status))) {
      fatal_ = Annotate(status, "coordinator " + address);
    } else if (fatal_.ok()) {
      news = NewsLocked(address, status, reached);
    }
    ending = {.welcomed = welcomed_, .serves = moved_ || rejected_};
  }
  if (!ending.serves) stub_.DoesNotServe();
  // Without the lock: a log line about a run calls Send, which takes it.
  if (!news.empty()) {
    const bool same = ending.serves || options_.access->alone();
    LogWarning("coordinator {}{}; {}", address, news,
               same ? "dialling again" : "trying " + options_.access->address());
  }
  return ending;
}

std::string Session::NewsLocked(const std::string& address, const Status& status, bool reached) {
  // gRPC words the failure of a connection differently each time.
  const std::string failure = !out_of_place_.empty() ? out_of_place_
                              : reached              ? std::string(Message(status))
                                                     : "no connection";
  std::string& last = failures_[address];
  if (!welcomed_ && last == failure) return "";
  last = failure;
  if (!out_of_place_.empty()) return " " + out_of_place_;
  if (moved_) return ": this machine has another address towards it";
  return fmt::format(": {}", status.ok() ? "closed the session" : Message(status));
}

std::string Session::WhyNotObeyed(uint64_t term) const {
  if (term >= term_) return "";
  return fmt::format("has {}, but one of term {} has taken over from it",
                     term == 0 ? "no term" : fmt::format("term {}", term), term_);
}

bool Session::HandleCommand(v1::WorkerCommand command) {
  const std::string address = stub_.address();
  // A refusal is a command as well: an old coordinator must not end this worker.
  out_of_place_ = WhyNotObeyed(command.term());
  if (!out_of_place_.empty()) return false;
  term_ = command.term();
  obeyed_ = address;
  if (command.has_reject()) {
    LogAboutPeer(
        LogLevel::kError, address,
        fmt::format("coordinator {} refuses this worker: {}", address, command.reject().reason()));
    const std::lock_guard lock(mutex_);
    rejected_ = true;
    if (command.reject().fatal()) {
      fatal_ = absl::FailedPreconditionError(command.reject().reason());
    }
    return false;
  }
  if (command.has_welcome()) {
    LogInfo("connected to coordinator {} (version {})", address,
            command.welcome().coordinator_version());
    const std::lock_guard lock(mutex_);
    welcomed_ = true;
    failures_.clear();
    heartbeat_ = absl::Seconds(std::clamp(command.welcome().heartbeat_seconds(), 0.05, 60.0));
    changed_.notify_all();
    return true;
  }
  options_.on_command(std::move(command));
  return true;
}

void Session::WriteLoop(Stream* stream) {
  MonoTime next_heartbeat = Now();
  MonoTime next_look = next_heartbeat;
  std::unique_lock lock(mutex_);
  while (true) {
    if (options_.moved && Now() >= next_look) {
      next_look = Now() + heartbeat_;
      lock.unlock();
      const bool moved = options_.moved();
      lock.lock();
      if (moved && context_ != nullptr) {
        moved_ = true;
        context_->TryCancel();
        return;
      }
    }
    changed_.wait_until(lock, next_heartbeat.ToChrono(), [this] {
      return closing_ || stream_ended_ || (welcomed_ && outbox_.Next() != nullptr);
    });
    if (closing_ || stream_ended_) return;
    v1::WorkerMessage message;
    const bool report = welcomed_ && outbox_.Next() != nullptr;
    if (report) {
      // Stays at the front until it is written, so that a broken stream does not lose it.
      message = *outbox_.Next();
    } else if (welcomed_) {
      message.mutable_heartbeat()->set_memory_used_bytes(MemoryUsed());
    }
    next_heartbeat = Now() + heartbeat_;
    if (!report && !welcomed_) continue;
    lock.unlock();
    // Without the lock: the callback takes the agent's lock, and the agent calls Send while it
    // holds that.
    if (message.has_heartbeat() && options_.heartbeat) {
      options_.heartbeat(message.mutable_heartbeat());
    }
    const bool written = stream->Write(message);
    lock.lock();
    if (!written) return;
    if (report) {
      outbox_.Written();
      if (outbox_.Next() == nullptr) changed_.notify_all();
    }
  }
}

}  // namespace longhaul::worker
