#include "worker/rpc/session.h"

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
  absl::Duration back_off = kFirstBackOff;
  while (true) {
    back_off = Connect() ? kFirstBackOff : std::min(2 * back_off, kLongestBackOff);
    {
      const std::lock_guard lock(mutex_);
      if (!fatal_.ok()) return;
    }
    if (!Sleep(back_off)) return;
  }
}

bool Session::Connect() {
  grpc::ClientContext context;
  options_.access->AddTo(&context);
  context.set_wait_for_ready(true);
  {
    const std::lock_guard lock(mutex_);
    if (closing_) return false;
    context_ = &context;
    stream_ended_ = false;
    moved_ = false;
    welcomed_ = false;
    outbox_.BeginSession();
  }
  const auto stub = stub_.Get();
  const auto stream = stub->Session(&context);
  v1::WorkerMessage hello;
  *hello.mutable_hello() = options_.hello();
  if (stream->Write(hello)) {
    std::thread writer([this, &stream] { WriteLoop(stream.get()); });
    v1::WorkerCommand command;
    while (stream->Read(&command)) {
      if (!HandleCommand(std::move(command))) {
        // Only then: after the coordinator's end it could hide why that was.
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
  bool welcomed = false;
  std::string news;
  {
    const std::lock_guard lock(mutex_);
    context_ = nullptr;
    if (closing_) return false;
    if (moved_) stub_.Drop();  // its connection has an address that is gone
    if (status.code() == absl::StatusCode::kUnauthenticated ||
        status.code() == absl::StatusCode::kPermissionDenied) {
      fatal_ = Annotate(status, "coordinator " + options_.access->address());
    } else if (fatal_.ok() && (welcomed_ || last_failure_ != Message(status))) {
      last_failure_ = std::string(Message(status));
      news = moved_                  ? "this machine has another address towards it"
             : last_failure_.empty() ? "closed the session"
                                     : last_failure_;
    }
    welcomed = welcomed_;
  }
  // Without the lock: a log line of a run comes back to Send.
  if (!news.empty()) {
    LogWarning("coordinator {}: {}; dialling again", options_.access->address(), news);
  }
  return welcomed;
}

bool Session::HandleCommand(v1::WorkerCommand command) {
  if (command.has_reject()) {
    LogAboutPeer(LogLevel::kError, options_.access->address(),
                 fmt::format("coordinator {} refuses this worker: {}", options_.access->address(),
                             command.reject().reason()));
    const std::lock_guard lock(mutex_);
    if (command.reject().fatal()) {
      fatal_ = absl::FailedPreconditionError(command.reject().reason());
    }
    return false;
  }
  if (command.has_welcome()) {
    LogInfo("connected to coordinator {} (version {})", options_.access->address(),
            command.welcome().coordinator_version());
    const std::lock_guard lock(mutex_);
    welcomed_ = true;
    last_failure_.clear();
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
    changed_.wait_until(lock, next_heartbeat, [this] {
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
