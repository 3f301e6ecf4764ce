// A standby: follows a coordinator and keeps a copy of everything needed to replace the
// coordinator, until the standby has to take over (takeover.h). It dials again whenever the
// connection is lost.
//
// Threads: the object has four of its own. due() may be called on any thread.
#pragma once

#include <grpcpp/grpcpp.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/status.h"
#include "coordinator/standby/change_pieces.h"
#include "coordinator/standby/leadership.h"
#include "coordinator/standby/state_copy.h"
#include "coordinator/standby/takeover.h"
#include "coordinator/standby/waiting_port.h"
#include "longhaul/v1/standby.grpc.pb.h"
#include "proto/member/access.h"

namespace longhaul::coordinator {

struct FollowerOptions {
  std::string predecessor;  // host:port of the coordinator
  std::string listen;       // host:port where this standby will serve after a takeover
  std::string state_dir;    // created if missing
  // Path of a join token for admins. Needed until the standby has a certificate; empty: none.
  std::string token_file;
  std::string version;  // of this program
};

// Returns the path of a standby's key and certificate, which may not exist yet. After a takeover
// the new coordinator calls its predecessor with them.
std::string StandbyCredentials(const std::string& state_dir);

class Follower {
 public:
  // Starts to follow, and returns before the copy is complete. Dials again and again while the
  // coordinator cannot be reached. The state directory may be that of a coordinator which
  // `predecessor` has replaced, even if that coordinator was never told. kFailedPrecondition: the
  // directory is unsuitable, or the token is missing. Other errors: `listen` or a file of the
  // directory cannot be used.
  static StatusOr<std::unique_ptr<Follower>> Start(const FollowerOptions& options);
  // Stops following. When the destructor returns, the port and the directory are free.
  ~Follower();

  // True once this standby has to take over. From then on it no longer follows.
  bool due() const;

 private:
  using Stream = grpc::ClientReaderWriter<v1::FollowerMessage, v1::FollowedMessage>;
  using Blob = std::pair<v1::BlobFolder, std::string>;

  Follower(FollowerOptions options, StateCopy copy)
      : options_(std::move(options)), copy_(std::move(copy)) {}
  void Loop();
  Status EnsureAccess();
  Status EnsurePort(const std::string& authority_pem);
  // Follows over one connection, until it ends.
  Status Follow();
  Status Take(const v1::FollowedMessage& message, Stream* stream);
  Status TakeBegin(const v1::FollowedMessage::Begin& begin);
  Status TakeBlob(const v1::FollowedMessage::Blob& blob);
  Status RemoveUnlisted();
  void FetchLoop(Stream* stream);
  Status Fetch(const Blob& blob);
  // False: the stream has ended.
  bool Say(Stream* stream, const v1::FollowerMessage& message);
  void WatchLoop();
  // Starts again over a new connection, because the copy misses something.
  void BeginAnew();
  void SetWhole(bool whole);
  // False if the follower is closing.
  bool Sleep(absl::Duration duration);

  const FollowerOptions options_;
  StateCopy copy_;                  // used on the Loop thread, except its blobs
  ChangeJoiner joiner_;             // used on the Loop thread
  std::shared_ptr<Access> access_;  // used on the Loop thread, while no coordinator is followed
  std::optional<StubOf<v1::StandbyService>> stub_;
  std::mutex write_mutex_;  // held while writing to the stream

  mutable std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  Contact contact_;
  LeadershipRecord record_;
  LeadershipRecord written_;  // record_ as written to the file
  std::set<Blob> listed_;     // blobs that the coordinator has
  std::deque<Blob> wanted_;   // listed blobs still to be looked up here, and fetched
  bool all_listed_ = false;
  grpc::ClientContext* context_ = nullptr;  // context of the open stream
  MonoTime dialled_{};                      // when dialling began
  grpc::ClientContext* fetch_context_ = nullptr;
  bool stream_ended_ = false;
  std::string last_trouble_;
  bool said_gone_ = false;  // the log has a line on the lost coordinator, since it last followed
  bool due_ = false;
  bool closing_ = false;

  std::unique_ptr<WaitingPort> port_;  // set with the first authority
  std::string port_authority_;         // authority of port_
  std::thread watch_, thread_;
};

}  // namespace longhaul::coordinator
