"""Sums over the rows of a matrix in compressed form, whose cost is that of the pairs of numbers in a row."""

from tensorcep.core.jit import kernel


@kernel
def add_weighted(start, column, value, weight, total):
    """Add the weighted outer products of sparse rows to `total` (d, d), its lower triangle."""
    for i in range(weight.shape[0]):
        for at in range(start[i], start[i + 1]):
            x, c = weight[i] * value[at], column[at]
            for other in range(start[i], at + 1):
                b = column[other]
                total[max(b, c), min(b, c)] += x * value[other]


@kernel
def write_quadratic(start, column, value, cov, result):
    """Write a_i' cov a_i of sparse rows."""
    for i in range(result.shape[0]):
        total = 0.0
        for at in range(start[i], start[i + 1]):
            c, half = column[at], 0.0
            for other in range(start[i], at):
                half += value[other] * cov[c, column[other]]
            total += value[at] * (2.0 * half + value[at] * cov[c, c])
        result[i] = total
