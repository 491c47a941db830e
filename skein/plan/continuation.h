// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Where does this start begin, and may it go on where a checkpoint stopped? Small files alone are
// read; that every byte of a checkpoint is whole the ranks find out together
// (train/beginning.h).

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "skein/checkpoint/files/catalog.h"
#include "skein/config/batch_plan.h"
#include "skein/config/load.h"
#include "skein/core/dtype.h"
#include "skein/core/file.h"
#include "skein/plan/hf_config.h"
#include "skein/plan/trainer_state.h"

namespace skein::plan {

// What is known of it before the data is read.
DataIdentity identity_before_data(const config::Resolved& resolved,
                                  const config::BatchPlan& batches, const HfConfig& model);

// What resume_from_checkpoint and fresh mean for an output folder.
enum class StartFrom { kBeginning, kNewest, kNamed };

// Throws UserError when `false` meets a started run.
StartFrom start_from(const config::CheckpointConfig& options, const fs::path& output);

// kNamed is the beginning of a run: once that has gone on, its own newer checkpoints win. The
// checkpoint that is named. Throws UserError when there is none, or it would be removed (fresh).
fs::path named_checkpoint(const config::CheckpointConfig& options, const fs::path& output);

// The newest checkpoint of the folder's run whose files have the sizes that were written and whose
// texts are whole. Throws IoError when something cannot be read.
std::optional<fs::path> newest_saved(const fs::path& output);

// Why a start is refused where there are checkpoints and none can be continued: to begin anew
// beside them would cost a user days. `why` follows in the sentence. Empty: none is in the way.
std::string nothing_to_continue(const fs::path& output,
                                const std::vector<checkpoint::SurveyedCheckpoint>& survey,
                                const std::string& why);

// The checkpoint that a start would continue: newest_saved(), or the named one. Throws as
// start_from() and named_checkpoint() do, UserError when the named one is not whole, IoError when
// something cannot be read or there is nothing_to_continue().
std::optional<fs::path> checkpoint_to_continue(const config::CheckpointConfig& options);

// Was the final model of a run of so many steps written here, and is it still? A run can end
// between its last checkpoint and that; and one that a --fresh has begun to remove is over.
bool has_final_model(const fs::path& output, int64_t steps);

// Did this very run end here without a checkpoint to continue (save_strategy: no)? Its final model
// and state tell. After its last step, or early.
bool is_finished(const config::RunConfig& config, const HfConfig& model,
                 const DataIdentity& identity);

// Throws UserError naming what changed the model or the order of the data since, and what to type;
// or that the checkpoint has no optimizer state. IoError when its state is not that of its step.
void check_continuation(const fs::path& checkpoint, const HfConfig& model,
                        const DataIdentity& identity);
// The same where what trains has 16 bits now (`dtype`) and had not then, or the other way round:
// the optimizer's states of one have master weights, and those of the other none.
void check_saved_dtype(const fs::path& checkpoint, const config::RunConfig& config,
                       const HfConfig& model, DType dtype);

}  // namespace skein::plan
