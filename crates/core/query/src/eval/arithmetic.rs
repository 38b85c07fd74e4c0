//! Values of the operators on two numbers.

use crate::plan::Operator;

/// Result of an operator on two numbers.
pub(crate) enum Computed {
    Number(f64),
    Compared(bool),
}

#[expect(clippy::float_cmp, reason = "the operators of PromQL compare exactly")]
pub(crate) fn compute(operator: Operator, left: f64, right: f64) -> Computed {
    use Computed::{Compared, Number};
    match operator {
        Operator::Add => Number(left + right),
        Operator::Sub => Number(left - right),
        Operator::Mul => Number(left * right),
        Operator::Div => Number(left / right),
        Operator::Mod => Number(left % right),
        Operator::Pow => Number(left.powf(right)),
        Operator::Atan2 => Number(left.atan2(right)),
        Operator::Equal => Compared(left == right),
        Operator::NotEqual => Compared(left != right),
        Operator::Less => Compared(left < right),
        Operator::LessEqual => Compared(left <= right),
        Operator::Greater => Compared(left > right),
        Operator::GreaterEqual => Compared(left >= right),
        // Set operators have no values; the parser refuses them between numbers.
        Operator::And | Operator::Or | Operator::Unless => Number(f64::NAN),
    }
}
