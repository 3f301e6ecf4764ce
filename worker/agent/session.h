// A worker's stream to its coordinator: dials, sends the hello and reports, passes commands on, and
// redials with back-off for ever. With several coordinators it dials the next one at once, and
// backs off after each was tried.
//
// A standby that takes over has a newer term than the coordinator before it. Commands with a term
// older than the newest obeyed one are refused: the old coordinator may come back without knowing
// that it was replaced.
//
// Threads: two of its own. `on_command` runs on one of them and must not block. Send is thread-safe
// and never blocks: reports wait until a coordinator is reachable, and recent ones are repeated in
// each new session (report_outbox.h).
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "base/clock.h"
#include "base/status.h"
#include "longhaul/v1/worker.grpc.pb.h"
#include "proto/member/access.h"
#include "worker/agent/report_outbox.h"

namespace longhaul::worker {

// Resident memory of this process in bytes; 0: unknown.
uint64_t MemoryUsed();

struct SessionOptions {
  std::shared_ptr<Access> access;
  std::function<v1::Hello()> hello;  // called at each connection
  // Called once a heartbeat on a session thread. True: this machine's address has changed, so the
  // hello is outdated and its connection will hear no answer. Null: never.
  std::function<bool()> moved;
  std::function<void(v1::WorkerCommand)> on_command;
  // Adds fields to a heartbeat; called on a session thread. Null: adds nothing.
  std::function<void(v1::Heartbeat*)> heartbeat = nullptr;
};

class Session {
 public:
  explicit Session(SessionOptions options);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  void Send(v1::WorkerMessage message);
  // Waits until all reports so far are written, at most `limit`. Does not wait while there is no
  // session.
  void AwaitSent(absl::Duration limit);
  // Set once if the coordinator refuses this worker finally (version, token).
  Status fatal() const;

 private:
  using Stream = grpc::ClientReaderWriter<v1::WorkerMessage, v1::WorkerCommand>;
  void Loop();
  // How one connection ended.
  struct Ending {
    bool welcomed = false;  // the coordinator accepted the hello: pauses begin short again
    bool serves = false;    // dial the same coordinator again, after a pause
  };
  Ending Connect();
  // Returns the log text about the end of a connection to `address`. Empty: nothing new. The caller
  // holds the lock.
  std::string NewsLocked(const std::string& address, const Status& status, bool reached);
  void WriteLoop(Stream* stream);
  // False: end the connection.
  bool HandleCommand(v1::WorkerCommand command);
  // Returns why a command of this term is refused; empty: it is obeyed.
  std::string WhyNotObeyed(uint64_t term) const;
  // False if the session is closing.
  bool Sleep(absl::Duration duration);

  const SessionOptions options_;
  StubOf<v1::WorkerService> stub_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  ReportOutbox outbox_;
  grpc::ClientContext* context_ = nullptr;  // context of the open connection
  bool stream_ended_ = false;
  bool moved_ = false;  // the address moved since the open connection was made
  bool welcomed_ = false;
  bool rejected_ = false;  // the open connection was refused
  bool closing_ = false;
  absl::Duration heartbeat_ = absl::Seconds(1);
  Status fatal_;
  // by address: the text logged since the last welcome
  std::map<std::string, std::string> failures_;
  // Used by the reading thread only.
  uint64_t term_ = 0;         // the newest term that was obeyed
  std::string obeyed_;        // the coordinator of the last obeyed command; empty: none
  std::string out_of_place_;  // why the open connection's commands are refused
  std::thread thread_;
};

}  // namespace longhaul::worker
