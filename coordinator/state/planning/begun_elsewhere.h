// Runs that begin from the checkpoint of a run that another coordinator trained, in an object store
// (run/stored/stored_checkpoint.h). Pure.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "coordinator/state/run_record.h"
#include "longhaul/v1/control.pb.h"
#include "run/file/run_spec.h"

namespace longhaul::coordinator {

// Returns the record of the run that wrote the checkpoint of this submission, as far as its
// description tells: the run's id and run file, its texts, and this checkpoint, whose only holder
// is the folder. `run_id` of each file names the run that wrote it. kInvalidArgument, kDataLoss,
// kFailedPrecondition: the submission's checkpoint is not what it has to be.
StatusOr<RunRecord> RunElsewhere(const v1::SubmitRequest& submit);

// Settles what `now` leaves open and a plan of the run `was` chose, in two parts: before it is
// checked whether the two agree (CheckResumable), and after.
void KeepChoicesToCompare(const RunSpec& was, RunSpec* now);
void KeepOtherChoices(const RunSpec& was, RunSpec* now);

}  // namespace longhaul::coordinator
