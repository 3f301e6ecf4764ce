#include "coordinator/standby/fencer.h"

#include <grpcpp/client_context.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/time/clock.h"
#include "base/log.h"
#include "coordinator/standby/follower.h"
#include "longhaul/v1/standby.grpc.pb.h"
#include "proto/member/access.h"
#include "proto/rpc/channel.h"
#include "proto/rpc/status.h"

namespace longhaul::coordinator {
namespace {

constexpr absl::Duration kCallLimit = absl::Seconds(2);
constexpr absl::Duration kFirstPause = absl::Milliseconds(500);
constexpr absl::Duration kLongestPause = absl::Seconds(5);

void SetLimit(grpc::ClientContext* context, absl::Duration limit) {
  // One that is not there refuses at once, or says nothing until then.
  context->set_deadline(absl::ToChronoTime(absl::Now() + limit));
}

}  // namespace

StatusOr<uint64_t> AskTerm(const std::string& address, const std::string& trusted,
                           absl::Duration limit) {
  Credentials stranger;
  stranger.authority_pem = trusted;
  const auto stub = v1::StandbyService::NewStub(MakeChannel(address, stranger));
  grpc::ClientContext context;
  SetLimit(&context, limit);
  v1::GetTermReply reply;
  LH_RETURN_IF_ERROR(FromGrpc(stub->GetTerm(&context, v1::GetTermRequest(), &reply)));
  return reply.term();
}

Fencer::Fencer(std::string state_dir, std::string address, Authorities authorities,
               Leadership* leadership)
    : state_dir_(std::move(state_dir)),
      address_(std::move(address)),
      authorities_(std::move(authorities)),
      leadership_(leadership),
      thread_([this] { Loop(); }) {}

Fencer::~Fencer() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Fencer::Loop() {
  absl::Duration pause = kFirstPause;
  while (leadership_->failure().ok()) {
    const LeadershipRecord record = leadership_->record();
    if (!record.predecessor.empty()) {
      const Status status = Tell(record.predecessor);
      if (status.ok()) {
        LogInfo("{}, from which this coordinator took over, has heard of it", record.predecessor);
        leadership_->ForgetPredecessor();
      } else {
        LogDebug("fencing {}: {}", record.predecessor, Message(status));
      }
    }
    if (!record.standby.empty()) AskStandby(record.standby);
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, absl::ToChronoNanoseconds(pause), [this] { return closing_; });
    if (closing_) return;
    pause = std::min(2 * pause, kLongestPause);
  }
}

// While it follows it is not there, or says that it has not taken over.
void Fencer::AskStandby(const std::string& standby) {
  const StatusOr<uint64_t> term = AskTerm(standby, authorities_.Trusted(absl::Now()), kCallLimit);
  if (term.ok()) leadership_->Yield(*term, standby);
}

Status Fencer::Tell(const std::string& predecessor) {
  LH_ASSIGN_OR_RETURN(
      const std::shared_ptr<Access> access,
      Access::Open({.addresses = {predecessor}, .credentials_file = StandbyCredentials(state_dir_)},
                   kCallLimit));
  const auto stub = v1::StandbyService::NewStub(access->Dial().channel);
  grpc::ClientContext context;
  access->Prepare(&context, /*wait=*/false);
  SetLimit(&context, kCallLimit);
  v1::FenceRequest request;
  request.set_term(leadership_->term());
  request.set_address(address_);
  v1::FenceReply reply;
  return FromGrpc(stub->Fence(&context, request, &reply));
}

}  // namespace longhaul::coordinator
