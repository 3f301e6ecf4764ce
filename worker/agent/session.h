// A worker's stream to its coordinator. The session dials, sends the hello and then reports, and
// passes on the coordinator's commands. When the stream ends, it dials again after a pause, until
// the coordinator refuses the worker for good (fatal). dial_order.h says which coordinator is next,
// and obedience.h whose commands are refused.
//
// Threads: two of its own, and with several coordinators a third one, which ends a connection that
// is silent. One of them calls `on_command`, which must not block. Send is
// thread-safe and never blocks: reports wait until a coordinator is reachable, and recent ones are
// repeated in each new session (report_outbox.h).
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
#include "worker/agent/dial_order.h"
#include "worker/agent/report_outbox.h"
#include "worker/agent/term_file.h"

namespace longhaul::worker {

// Resident memory of this process in bytes; 0: unknown.
uint64_t MemoryUsed();

struct SessionOptions {
  std::shared_ptr<Access> access;
  std::function<v1::Hello()> hello;  // called for each connection, on a session thread; may block
  // Returns true if this machine's address has changed. Then the connection is dead and the hello
  // is outdated, so the session dials again. Called once per heartbeat interval, on a session
  // thread. Null: the address never changes.
  std::function<bool()> moved;
  std::function<void(v1::WorkerCommand)> on_command;  // on a session thread; not null
  // Adds fields to a heartbeat; called on a session thread. Null: adds nothing.
  std::function<void(v1::Heartbeat*)> heartbeat = nullptr;
  TermFile terms = TermFile::InMemory();    // the leader that this worker obeyed last
  absl::Duration silence = kLeaderSilence;  // DialOrder's; tests shorten it
};

class Session {
 public:
  // Starts to dial. The callbacks run until the destructor has returned.
  explicit Session(SessionOptions options);
  // Ends the connection at once and joins the threads. Reports that wait are lost.
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Queues a report.
  void Send(v1::WorkerMessage message);
  // Blocks until all reports are written, but at most for `limit`. Returns at once if there is no
  // open connection, or no coordinator has accepted it.
  void AwaitSent(absl::Duration limit);
  // Returns whether a coordinator has accepted this worker on the open connection.
  bool IsConnected() const;
  // Returns an error if the coordinator has refused this worker for good, for example because of
  // its version or token. The session has then ended. Otherwise returns OK.
  Status fatal() const;

 private:
  using Stream = grpc::ClientReaderWriter<v1::WorkerMessage, v1::WorkerCommand>;
  void Loop();
  SessionEnding Connect();
  // Reads and handles commands until the stream ends.
  void ReadLoop(Stream* stream, grpc::ClientContext* context);
  // Returns the log text about the end of a connection to `address`. Empty: the same failure at
  // this address is logged already. The caller holds mutex_.
  std::string NewsLocked(const std::string& address, const Status& status, bool reached);
  void WriteLoop(Stream* stream);
  // Ends the connection if nothing is heard for too long.
  void WatchSilence();
  // Obeys or refuses a command. False: the connection must end.
  bool HandleCommand(v1::WorkerCommand command);
  // Returns whether the command is obeyed. If not, sets out_of_place_.
  bool Obeys(const v1::WorkerCommand& command, const std::string& address);
  // Returns early, with false, if the session is closing.
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
  bool silent_ = false;    // nothing was heard for too long on the open connection
  MonoTime heard_{};       // the last command on the open connection, or its beginning
  bool closing_ = false;
  absl::Duration heartbeat_ = absl::Seconds(1);
  Status fatal_;
  // by address: the text logged since the last welcome
  std::map<std::string, std::string> failures_;
  // Used by the reading thread only.
  DialOrder order_;
  TermFile terms_;
  std::string obeyed_;        // the coordinator of the last obeyed command; empty: none
  std::string out_of_place_;  // why the open connection's commands are refused
  std::thread thread_;
};

}  // namespace longhaul::worker
