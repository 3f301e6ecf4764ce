// A standby: follows a coordinator, with a copy of all that it needs to take its place, until it
// has to (takeover.h). It dials again for ever.
//
// Threads: four of its own. Thread-safe.
#ifndef LONGHAUL_COORDINATOR_STANDBY_FOLLOWER_H_
#define LONGHAUL_COORDINATOR_STANDBY_FOLLOWER_H_

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
  std::string listen;       // where this one will serve
  std::string state_dir;
  std::string token_file;  // a join token for admins; needed until there is a certificate
  std::string version;
};

// Where a standby has its key and certificate, by which it also reaches its predecessor later.
std::string StandbyCredentials(const std::string& state_dir);

class Follower {
 public:
  // The directory may be that of a coordinator from which `predecessor` has taken over, also where
  // it has not heard of that. kFailedPrecondition: the directory, or a token that is not there.
  static StatusOr<std::unique_ptr<Follower>> Start(const FollowerOptions& options);
  // Its port is free, and its directory, when this returns.
  ~Follower();

  // Whether it is time to take over: then the follower has ended following.
  bool due() const;

 private:
  using Stream = grpc::ClientReaderWriter<v1::FollowerMessage, v1::FollowedMessage>;
  using Blob = std::pair<v1::BlobFolder, std::string>;

  Follower(FollowerOptions options, StateCopy copy)
      : options_(std::move(options)), copy_(std::move(copy)) {}
  void Loop();
  Status EnsureAccess();
  Status EnsurePort(const std::string& authority_pem);
  // One connection, until it ends.
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
  // The copy misses something: it begins anew, by another connection.
  void BeginAnew();
  void SetWhole(bool whole);
  // False when closing.
  bool Sleep(absl::Duration duration);

  const FollowerOptions options_;
  StateCopy copy_;                  // the Loop thread's, but for its blobs
  ChangeJoiner joiner_;             // the Loop thread's
  std::shared_ptr<Access> access_;  // the Loop thread's, while nothing is followed
  std::optional<StubOf<v1::StandbyService>> stub_;
  std::mutex write_mutex_;  // held to write to the stream

  mutable std::mutex mutex_;  // of all below
  std::condition_variable changed_;
  Contact contact_;
  LeadershipRecord record_;
  LeadershipRecord written_;  // record_ as the file has it
  std::set<Blob> listed_;     // that the coordinator has
  std::deque<Blob> wanted_;   // of those, that are to be looked for here, and fetched
  bool all_listed_ = false;
  grpc::ClientContext* context_ = nullptr;  // of the stream that is open
  MonoTime dialled_{};                      // when that began
  grpc::ClientContext* fetch_context_ = nullptr;
  bool stream_ended_ = false;
  std::string last_trouble_;
  bool said_gone_ = false;  // since it followed last
  bool due_ = false;
  bool closing_ = false;

  std::unique_ptr<WaitingPort> port_;  // from the first authority on
  std::string port_authority_;         // that the port has
  std::thread watch_, thread_;
};

}  // namespace longhaul::coordinator

#endif  // LONGHAUL_COORDINATOR_STANDBY_FOLLOWER_H_
