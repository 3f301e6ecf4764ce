// StandbyService: the other coordinator follows this one.
#pragma once

#include <utility>

#include "coordinator/rpc/follow_call.h"
#include "coordinator/rpc/follow_session.h"
#include "coordinator/rpc/gate.h"
#include "longhaul/v1/standby.grpc.pb.h"

namespace longhaul::coordinator {

class StandbyServiceImpl : public StandbyServiceBase {
 public:
  // `gate` and the parts of `followed` must outlive the server.
  StandbyServiceImpl(Gate* gate, Followed followed) : gate_(gate), followed_(std::move(followed)) {}

  using Context = grpc::CallbackServerContext;
  // FollowPort passes each call of Follow to Accept.
  void Accept(FollowCall* call);
  grpc::ServerWriteReactor<v1::BlobChunk>* FetchCopy(Context* context,
                                                     const v1::FetchBlobRequest* request) override;
  grpc::ServerReadReactor<v1::CopyChunk>* GiveCopy(Context* context, v1::CopyReply* reply) override;
  grpc::ServerUnaryReactor* GetTerm(Context* context, const v1::GetTermRequest* request,
                                    v1::GetTermReply* reply) override;

 private:
  Gate* const gate_;
  const Followed followed_;
};

}  // namespace longhaul::coordinator
