"""Every input check and the sentence it raises: what was wrong, the value, what is allowed, what to do."""

from __future__ import annotations

from tensorcep.core.checks.arrays import DUPLICATE_POLICIES as DUPLICATE_POLICIES
from tensorcep.core.checks.arrays import INT64_MAX as INT64_MAX
from tensorcep.core.checks.arrays import LARGEST as LARGEST
from tensorcep.core.checks.arrays import check_both_classes as check_both_classes
from tensorcep.core.checks.arrays import check_coords as check_coords
from tensorcep.core.checks.arrays import check_counts as check_counts
from tensorcep.core.checks.arrays import check_mask_or_rows as check_mask_or_rows
from tensorcep.core.checks.arrays import check_matrix as check_matrix
from tensorcep.core.checks.arrays import check_mode_count as check_mode_count
from tensorcep.core.checks.arrays import check_not_empty as check_not_empty
from tensorcep.core.checks.arrays import check_ordered as check_ordered
from tensorcep.core.checks.arrays import check_per_mode as check_per_mode
from tensorcep.core.checks.arrays import check_positive as check_positive
from tensorcep.core.checks.arrays import check_probabilities as check_probabilities
from tensorcep.core.checks.arrays import check_same_shape as check_same_shape
from tensorcep.core.checks.arrays import check_shape as check_shape
from tensorcep.core.checks.arrays import check_size as check_size
from tensorcep.core.checks.arrays import check_sizes as check_sizes
from tensorcep.core.checks.arrays import check_unmasked as check_unmasked
from tensorcep.core.checks.arrays import check_values as check_values
from tensorcep.core.checks.arrays import check_vectors as check_vectors
from tensorcep.core.checks.arrays import check_weights as check_weights
from tensorcep.core.checks.arrays import check_zero_one as check_zero_one
from tensorcep.core.checks.files import check_checksum as check_checksum
from tensorcep.core.checks.files import check_columns as check_columns
from tensorcep.core.checks.files import check_file as check_file
from tensorcep.core.checks.files import listed as listed
from tensorcep.core.checks.messages import fail_value as fail_value
from tensorcep.core.checks.messages import printable as printable
from tensorcep.core.checks.messages import reason_of as reason_of
from tensorcep.core.checks.messages import warn_user as warn_user
from tensorcep.core.checks.settings import Seed as Seed
from tensorcep.core.checks.settings import check_choice as check_choice
from tensorcep.core.checks.settings import check_exactly_one as check_exactly_one
from tensorcep.core.checks.settings import check_flag as check_flag
from tensorcep.core.checks.settings import check_fraction as check_fraction
from tensorcep.core.checks.settings import check_int as check_int
from tensorcep.core.checks.settings import check_only_for as check_only_for
from tensorcep.core.checks.settings import check_random_state as check_random_state
from tensorcep.core.checks.settings import check_range as check_range
from tensorcep.core.checks.settings import word_or_range as word_or_range
